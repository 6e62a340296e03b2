"""A secure sum and its clients in one process, some of which are lost at one stage or another."""

import struct
import subprocess
from dataclasses import replace

import numpy as np
from flwr.app import ConfigRecord

from strategies.rounds.client_memory import ClientMemory
from strategies.rounds.exchange import advance
from strategies.secure.messages import Request, Stage
from tests.support.compressed_network import FIRST_NODE, SIZE, Network, change_entry, flatten
from tests.support.replies import cohort


def request_of(message):
    """Return the stage's request in a message."""
    return Request.decode(message.content["fedavg-strategies"]["secure-sum"])


class SecureNetwork(Network):
    """Clients 0 .. K - 1 of a secure sum.

    Attributes:
        spoil: By stage and client, what changes a reply before the server gets it.
        replies: By stage and client, the replies of the last round.
        errors: By client, what it refused in the last round.
    """

    def __init__(self, clients=4, nodes=(), **arguments):
        super().__init__("secure-sum", clients, **arguments)
        self.spoil = {}
        for context, config in zip(self.contexts, nodes, strict=False):
            context.node_config.update(config)

    def sum_round(self, changes, lost=None, change_message=lambda message: None):
        """Run a round with a change by client; ``lost`` has the clients that vanish, by stage."""
        lost, gone = lost or {}, set()
        self.round += 1
        grid = cohort(*(FIRST_NODE + client for client in changes))
        exchanges = self.runner.round(self.round, self.model, ConfigRecord(), grid)
        self.replies, self.errors = {}, {}
        exchange, self.outcome = advance(exchanges)
        while exchange is not None:
            stage = request_of(exchange.messages[0]).stage
            gone |= set(lost.get(stage, ()))
            self.replies[stage] = {}
            for message in exchange.messages:
                client = message.metadata.dst_node_id - FIRST_NODE
                if client in gone:
                    continue
                change_message(message)
                try:
                    self.replies[stage][client] = self.train(message, changes[client])
                except ValueError as error:
                    self.errors[client] = str(error)
            for client, reply in self.replies[stage].items():
                self.spoil.get((stage, client), lambda reply: None)(reply)
                exchange.take(reply)
            exchange, self.outcome = advance(exchanges)
        self.model = self.outcome.model or self.model
        return self.outcome

    def memory(self, client):
        return ClientMemory.read(self.contexts[client].state)

    def model_after(self, model, clients):
        """Return a model after the numbers that these clients kept as sent, which no server saw."""
        uplink, after = self.strategy.codec.uplink, flatten(model)
        kept = [self.memory(client).pending for client in clients]
        (seed, scale), *others = {struct.unpack_from("<Qf", data) for data in kept}
        assert not others, "all have the same positions and scale"
        total = sum(uplink.numbers(data, SIZE) for data in kept)
        most = 2 ** (uplink.bits - 1) - 1
        mean = (total / len(kept) - most) * (scale / most)
        after[uplink.positions(seed, SIZE)] += mean.astype(np.float32)
        return after


def stages(signed=False):
    """Return the stages of a round, in order."""
    return [stage for stage in Stage if signed or stage != Stage.SIGN]


def change_request(message, **changes):
    """Replace fields of the stage's request in a message."""
    request = replace(request_of(message), **changes)
    change_entry(message, "secure-sum", request.encode())


def identities(folder, count):
    """Write keys by ssh-keygen; return each device's node config, and their peers' file."""
    folder.mkdir(exist_ok=True)
    for device in range(count):
        key = str(folder / f"device{device}")
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    peers = folder / "peers"
    peers.write_text("".join(path.read_text() for path in sorted(folder.glob("*.pub"))))
    return [
        {"signing-key": str(folder / f"device{device}"), "peers": str(peers)}
        for device in range(count)
    ]
