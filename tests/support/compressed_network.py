"""A compressed strategy and its clients in one process: both real ends, simulated training."""

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict

import strategies
from strategies.compression.sync_protocol import Payload
from strategies.compression.vector_layout import Layout
from strategies.rounds.client_memory import ClientMemory
from tests.support.compression_reference import decode_ternary
from tests.support.replies import cohort

SHAPES = {"weight": (9, 13), "bias": (13,), "scale": ()}
BLOCKS = (117, 13, 1)
SIZE = sum(BLOCKS)
FIRST_NODE = 10
# Of a reply's payload: protocol, status, codec and round.
REPLY_HEAD_BYTES = 10


def flatten(arrays):
    return np.concatenate([array.numpy().reshape(-1) for array in arrays.values()])


def model_record(vector):
    """Return an ArrayRecord with `SHAPES` that holds the vector."""
    parts = np.split(np.asarray(vector, np.float32), np.cumsum(BLOCKS)[:-1])
    shapes = zip(SHAPES.items(), parts, strict=True)
    return ArrayRecord(
        {name: Array(np.asarray(part.reshape(shape))) for (name, shape), part in shapes}
    )


def payload(reply):
    return reply.content["fedavg-strategies"]["payload"].data


def sent(reply):
    """Return the update in a reply of STC, decoded bit by bit."""
    return np.array(decode_ternary(payload(reply)[REPLY_HEAD_BYTES:], BLOCKS))


def trained(message, arrays, **metrics):
    """Return what a client's training replies to a message: these arrays, with one example."""
    metrics = MetricRecord({"num-examples": 1, **metrics})
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)


def change_entry(message, name, value):
    """Replace an entry of the strategies' own record, which others may hold; None removes it."""
    entries = {**message.content["fedavg-strategies"], name: value}
    if value is None:
        del entries[name]
    message.content["fedavg-strategies"] = ConfigRecord(entries)


def payload_record(data):
    """Return the record of a reply with these bytes."""
    array = Array("uint8", (len(data),), "fedavg_strategies.update", data)
    return ArrayRecord({"payload": array})


def replace_payload(reply, data):
    reply.content["fedavg-strategies"] = payload_record(data)


class Network:
    """Clients 0 .. K - 1 on nodes 10, 11, ...

    Attributes:
        runner: Of the server's end.
        strategy: The server's end.
        model: The global model, an ArrayRecord.
        contexts: The clients' contexts.
        trained_from: By client, the vector from which its last training started.
        round: The number of the last round configured.
        bits_down: What its messages cost by formula.
        outcome: The `RoundOutcome` of the last round aggregated.
    """

    def __init__(self, name, clients=4, seed=0, settings=None, **arguments):
        self.rng = np.random.default_rng(seed)
        self.runner = strategies.build(name, arguments, settings)
        self.strategy = self.runner.strategy
        self.client_mod = strategies.client_mod(name, arguments)
        self.model = model_record(self.rng.normal(size=SIZE))
        self.contexts = [self.new_context(client) for client in range(clients)]
        self.trained_from = {}
        self.round = 0

    def new_context(self, client):
        return Context(1, FIRST_NODE + client, {"partition-id": client}, RecordDict(), {})

    def configure(self, *clients, **config):
        """Begin a round; return its messages to these clients."""
        self.round += 1
        grid = cohort(*(FIRST_NODE + client for client in clients))
        config = ConfigRecord(config)
        messages = self.runner.configure_train(self.round, self.model, config, grid)
        now = self.runner.now
        self.bits_down = sum(self.strategy.bits_down(now, node) for node in grid.get_node_ids())
        return messages

    @property
    def layout(self):
        return Layout(tuple(SHAPES), tuple(SHAPES.values()))

    def reply_with(self, status, update=b"", server_round=None):
        """Return the payload of a reply to the current round, or to another."""
        codec = self.strategy.codec.digest
        server_round = self.round if server_round is None else server_round
        return Payload(status, codec, server_round, update).encode()

    def train(self, message, change, num_examples=1):
        """Return the client's reply to a message; its training adds ``change``, a vector."""
        client = message.metadata.dst_node_id - FIRST_NODE

        def fit(message, _):
            before = flatten(message.content["arrays"])
            self.trained_from[client] = before
            metrics = {"num-examples": num_examples, "train-loss": 1.0}
            return trained(message, model_record(before + change), **metrics)

        return self.client_mod(message, self.contexts[client], fit)

    def evaluate(self, *clients):
        """Let clients evaluate the model.

        Return whether each was sent the whole model, what each evaluated, and the outcome.
        """
        grid = cohort(*(FIRST_NODE + client for client in clients))
        messages = self.runner.configure_evaluate(self.round, self.model, ConfigRecord(), grid)
        whole, found = ["arrays" in message.content for message in messages], []

        def score(message, _):
            found.append(flatten(message.content["arrays"]))
            return Message(
                RecordDict({"metrics": MetricRecord({"num-examples": 1})}), reply_to=message
            )

        replies = []
        for client, message in zip(clients, messages, strict=True):
            replies.append(self.client_mod(message, self.contexts[client], score))
        return whole, found, self.runner.finish_evaluation(replies)

    def aggregate(self, replies):
        self.outcome = self.runner.finish_round(replies)
        self.model = self.outcome.model or self.model

    def run_round(self, changes, num_examples=None, spoil=lambda replies: None):
        """Run a round with a change per client (a dict); return the replies that the server got."""
        counts = num_examples or dict.fromkeys(changes, 1)
        messages = self.configure(*changes)
        replies = [
            self.train(message, changes[client], counts[client])
            for message, client in zip(messages, changes, strict=True)
        ]
        spoil(replies)
        self.aggregate(replies)
        return replies

    def random_change(self):
        return self.rng.normal(size=SIZE).astype(np.float32)

    def residual(self, client):
        """Return the client's residual as if the update sent last had been accepted."""
        memory = ClientMemory.read(self.contexts[client].state)
        sent = self.strategy.codec.uplink.decode(memory.pending, self.layout)
        return memory.vectors["residual"] - sent.to_dense()


def state_bytes(context):
    """Return every byte of a client's state, to compare two states."""
    return {
        name: {
            key: (value.data, value.dtype, tuple(value.shape)) if hasattr(value, "data") else value
            for key, value in record.items()
        }
        for name, record in context.state.items()
    }
