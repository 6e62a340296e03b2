"""SCAFFOLD: control variates correct the drift of clients with unlike data.

S. P. Karimireddy, S. Kale, M. Mohri, S. J. Reddi, S. U. Stich, A. T. Suresh: SCAFFOLD: Stochastic
Controlled Averaging for Federated Learning. ICML 2020, arXiv 1910.06378, Algorithm 1, option II.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp.typing import ClientAppCallable
from flwr.serverapp import Grid
from numpy.typing import NDArray

from strategies.aggregation import Arrays, WeightedMean, l2_norm, moved, without
from strategies.base import FederatedStrategy, broadcast, model_bits
from strategies.flower_arrays import (
    find_record,
    from_record,
    get_record,
    to_record,
)
from strategies.local_steps import local_steps
from strategies.registry import Positive
from strategies.reply_validation import (
    ARRAYS,
    CONFIG,
    GRADIENT_OFFSET,
    METRICS,
    NUM_EXAMPLES,
    ClientUpdate,
    check_norm,
    read_arrays,
    validate_arrays,
)

# The record of the server's control variate in a message, and of the change of the client's in a
# reply; the setting that names the last round accepted of the client.
VARIATE, ACCEPTED = "control-variate", "accepted-round"
# Records of a client's state: its variate, the one that it sent last, and the round of that.
OWN, PENDING, SENT = "scaffold-own", "scaffold-pending", "scaffold-sent"

Vectors = dict[str, NDArray[np.float64]]
# A client's model y, and the change of its control variate.
ModelAndChange = tuple[Arrays, Arrays]


class SCAFFOLD(FederatedStrategy[ModelAndChange]):
    """SCAFFOLD: clients step by g(y) - c_k + c; the server's variate c is the mean of the c_k.

    With x the global model and K steps at the rate eta, a client's next variate is
    c_k - c + (x - y) / (K eta). The server moves by x <- x + global_learning_rate mean(y - x) and
    c <- c + |S| / N mean(change of c_k), over the |S| of N clients whose replies were usable; a
    client keeps its next variate once the server has named its reply as accepted. Messages are
    twice as large as FedAvg's, both ways. A client that loses its state begins with c_k = 0, while
    the server's c still has its part.

    Args:
        global_learning_rate: eta_g, of the server.
    """

    plain_sgd = True

    def __init__(self, global_learning_rate: Positive = 1.0) -> None:
        super().__init__()
        self.global_learning_rate = global_learning_rate
        self.variate: Vectors = {}
        self._accepted: dict[int, int] = {}  # by node, the last round accepted of it
        self.reset()

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return a message for each node with the model, c, and the round accepted of it last."""
        self.start_round(server_round, arrays, config)
        trained = without(from_record(arrays), self.settings.buffers)
        if not self.variate:
            self.variate = {name: np.zeros(w.shape) for name, w in trained.items()}
        sent = to_record({name: self.variate[name].astype(w.dtype) for name, w in trained.items()})
        messages = broadcast(self.train_type, server_round, arrays, config, grid)
        for message in messages:
            own = config.copy()
            own[ACCEPTED] = self._accepted.get(message.metadata.dst_node_id, 0)
            message.content[CONFIG], message.content[VARIATE] = own, sent
        return messages

    def validate(self, reply: Message) -> ClientUpdate[ModelAndChange]:
        """Return the client's model and the change of its control variate.

        The change plus c is (x - y) / (K eta), so that the bound on the update bounds it, too.
        """
        update = validate_arrays(reply, self.model, self.settings.bounds, origin=self.model)
        change = read_arrays(reply, self.trained(self.model), VARIATE)
        if self.settings.bounds.max_update_norm < np.inf:
            explained = {name: one + self.variate[name] for name, one in wide(change).items()}
            scale = step_length(self.config, update.report.num_examples)
            check_norm(scale * l2_norm(explained), self.settings.bounds)
        return ClientUpdate(update.report, (update.content, change))

    def accumulate(self, update: ClientUpdate[ModelAndChange]) -> None:
        """Add y and the change of c_k to their sums; all clients count alike."""
        model, change = update.content
        self.mean.add(without(model, self.settings.buffers), 1.0)
        self.changes.add(wide(change), 1.0)
        self.buffer_mean.add(model, 1.0)
        self.nodes.append(update.report.node_id)

    def finalize(self, model: Arrays) -> Arrays:
        """Return the next model; the server's variate moves, and the replies are accepted."""
        share = len(self.nodes) / max(self.settings.num_clients, len(self.nodes))
        for name, change in wide(self.changes.result()).items():
            self.variate[name] = self.variate[name] + share * change
        self._accepted |= dict.fromkeys(self.nodes, self.server_round)
        new = self.mean.result()
        if (rate := self.global_learning_rate) != 1:
            old = wide(model)
            changes = {name: rate * (y - old[name]) for name, y in wide(new).items()}
            new = moved(model, changes)
        return new

    def reset(self) -> None:
        """Begin with empty sums."""
        super().reset()
        self.mean, self.changes = WeightedMean(), WeightedMean()
        self.nodes: list[int] = []

    def reply_bits(self) -> float:
        """Return 32 bits for each entry of the model and of the variate."""
        return model_bits(self.model) + model_bits(self.trained(self.model))

    def round_bits(self, messages: Iterable[Message]) -> float:
        """Return the same for each message."""
        return len(list(messages)) * self.reply_bits()

    def forget_clients(self) -> None:
        """Begin with no variates, as the clients do."""
        self.variate, self._accepted = {}, {}

    def client_mod(
        self, message: Message, context: Context, call_next: ClientAppCallable
    ) -> Message:
        """Train by g(y) - c_k + c instead of g(y); send the change of c_k beside the model."""
        if not message.metadata.message_type.startswith("train"):
            return call_next(message, context)
        config = get_record(message.content, CONFIG, ConfigRecord)
        model = get_record(message.content, ARRAYS, ArrayRecord)
        sent = from_record(get_record(message.content, VARIATE, ArrayRecord))
        server = wide(sent)
        own = own_variate(context.state, server, int(str(config[ACCEPTED])))
        offset = to_record(
            {name: (server[name] - own[name]).astype(sent[name].dtype) for name in sent}
        )
        message.content = RecordDict({ARRAYS: model, CONFIG: config, GRADIENT_OFFSET: offset})
        reply = call_next(message, context)
        trained = find_record(reply.content, ARRAYS, ArrayRecord)
        if trained is None:
            return reply
        examples = get_record(reply.content, METRICS, MetricRecord)[NUM_EXAMPLES]
        scale = step_length(config, float(str(examples)))
        x, y = wide(from_record(model)), wide(from_record(trained))
        change = {name: (x[name] - y[name]) / scale - c for name, c in server.items()}
        rounded = {name: one.astype(sent[name].dtype) for name, one in change.items()}
        reply.content[VARIATE] = to_record(rounded)
        # The state changes last.
        context.state[OWN] = to_record(own)
        context.state[PENDING] = to_record({name: own[name] + rounded[name] for name in server})
        context.state[SENT] = ConfigRecord({"round": int(str(config["server-round"]))})
        return reply


def own_variate(state: RecordDict, like: Vectors, accepted: int) -> Vectors:
    """Return the client's control variate now that the server says what it accepted.

    The variate sent last counts if its round is the one accepted; otherwise that reply was lost,
    late or rejected, and the one before it holds. A state older than what the server has accepted
    is an old copy: the client begins with zero, as a new one does.
    """
    sent = find_record(state, SENT, ConfigRecord)
    last = 0 if sent is None else int(str(sent["round"]))
    if accepted > last or sent is None:
        return {name: np.zeros_like(array) for name, array in like.items()}
    return wide(from_record(get_record(state, PENDING if accepted == last else OWN, ArrayRecord)))


def step_length(config: Mapping[str, Any], num_examples: float) -> float:
    """Return K eta of a client that has so many examples."""
    return local_steps(config, num_examples) * float(config["learning-rate"])


def wide(arrays: Arrays) -> Vectors:
    """Return the arrays in float64."""
    return {name: array.astype(np.float64) for name, array in arrays.items()}
