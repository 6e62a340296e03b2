"""What every strategy of ours shares: who is written to, what is believed, how it is reported.

A strategy is a `flwr.serverapp.strategy.Strategy`: four methods around one round. `CohortStrategy`
writes one message to each node that the grid shows it. Which nodes those are is not its business:
the round loop shows it the round's cohort (`fedavg_app.cohort`), so that one seeded sampler serves
every strategy, Flower's own included.
"""

import logging
import math
from abc import abstractmethod
from collections.abc import Iterable
from typing import ClassVar

from flwr.app import (
    ArrayRecord,
    ConfigRecord,
    Context,
    Message,
    MessageType,
    MetricRecord,
    RecordDict,
)
from flwr.clientapp.typing import ClientAppCallable
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from strategies.compression.theory import dense_bits
from strategies.limits import Limits
from strategies.screening import (
    ARRAYS,
    CONFIG,
    accuracy_spread,
    check_metrics,
    check_update,
    mean_metrics,
    screen,
)

logger = logging.getLogger("fedavg_app.strategies")


class CohortStrategy(Strategy):
    """Writes the model to every node of the cohort and aggregates the replies that pass.

    Subclasses implement `aggregate` and, where what travels differs, override `configure_train`,
    `check_reply` and `client_mod`.

    Attributes:
        train_type: The message type of a training message: "train" runs the task client's `fit`,
            "train.gradient" its `gradient`.
        limits: What replies must keep to besides; set before the first round.
        rejected: Reasons by node id for the replies refused in the last `aggregate_*` call.
        sent_arrays: The global model that the round's training messages carry.
        sent_config: The config that they carry.
        recovering: How many clients of the last `aggregate_train` could not train before they get
            what they asked for; a round of such clients is no sign that the run has failed.
        theory_bits_down: What the round's training messages cost by the papers' formulas, in bits.
        theory_bits_up: What the accepted training replies cost by them.
    """

    train_type: ClassVar[str] = MessageType.TRAIN

    def __init__(self) -> None:
        self.limits = Limits()
        self.rejected: dict[int, str] = {}
        self.sent_arrays = ArrayRecord()
        self.sent_config = ConfigRecord()
        self.theory_bits_down = self.theory_bits_up = 0.0
        self.recovering = 0

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """Return one training message per node of the grid, in the grid's order."""
        self.sent_arrays, self.sent_config = arrays, config
        messages = _broadcast(self.train_type, server_round, arrays, config, grid)
        self.theory_bits_down = len(messages) * model_bits(arrays)
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Aggregate the replies that pass `check_reply`; (None, None) where they are too few.

        Refused replies are logged with their node's id and kept in `rejected`.
        """
        accepted, self.rejected = screen(replies, self.check_reply, self.limits.min_replies)
        log_rejected(server_round, self.rejected)
        self.theory_bits_up = len(accepted) * self.theory_reply_bits()
        if not accepted:
            return None, None
        return self.aggregate(accepted), mean_metrics(accepted)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """Return one evaluation message per node of the grid."""
        return _broadcast(MessageType.EVALUATE, server_round, arrays, config, grid)

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Return the n_k-weighted means of the clients' metrics, and how accuracies differ.

        None where no reply passes.
        """
        accepted, self.rejected = screen(replies, lambda reply: check_metrics(reply, self.limits))
        log_rejected(server_round, self.rejected)
        if not accepted:
            return None
        return MetricRecord({**mean_metrics(accepted), **accuracy_spread(accepted)})

    def theory_reply_bits(self) -> float:
        """Return what one training reply costs by the papers' formulas: here a model as it is."""
        return model_bits(self.sent_arrays)

    @property
    def origin(self) -> ArrayRecord | None:
        """What a client's update is the difference to: the model sent; None for a gradient."""
        return self.sent_arrays if self.train_type == MessageType.TRAIN else None

    def check_reply(self, reply: Message) -> None:
        """Check one training reply against the model that was sent, and the limits.

        Whether the reply is used is decided when all have come (`aggregate`).

        Raises:
            strategies.screening.ReplyError: The reply must not be used.
        """
        check_update(reply, self.sent_arrays, self.limits, self.origin)

    @staticmethod
    def client_mod(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        """Handle a message on the client, around the ClientApp's own handler `call_next`.

        Strategies that change what travels override this; it is their protocol's other end.
        """
        return call_next(message, context)

    @abstractmethod
    def aggregate(self, replies: list[Message]) -> ArrayRecord:
        """Return the next global model from at least one checked reply."""

    def summary(self) -> None:
        """Log what this strategy is: the first line of its docstring."""
        logger.info("%s", (type(self).__doc__ or type(self).__name__).split("\n")[0])


def model_bits(arrays: ArrayRecord) -> float:
    """Return the bits of a model sent as it is: 32 for every entry of its arrays."""
    return dense_bits(sum(math.prod(array.shape) for array in arrays.values()))


def log_rejected(server_round: int, rejected: dict[int, str]) -> None:
    """Log one warning per refused reply, with the node's id."""
    for node, reason in rejected.items():
        logger.warning("round %d: reply of node %d rejected: %s", server_round, node, reason)


def _broadcast(
    message_type: str, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
) -> list[Message]:
    config["server-round"] = server_round
    # A dictionary of its own for every message: a mod may change what its message holds.
    return [
        Message(
            RecordDict({ARRAYS: arrays, CONFIG: config}),
            dst_node_id=node,
            message_type=message_type,
            group_id=str(server_round),
        )
        for node in grid.get_node_ids()
    ]
