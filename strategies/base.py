"""`FederatedStrategy`: the contract of every strategy that the training loop drives.

One round has four steps:

1. `configure_train` returns the round's messages, one for each node of the cohort.
2. `validate` checks a reply and returns its content as a `ClientUpdate`. It changes nothing.
3. `accumulate` adds a valid update to the round's sum. It is called in the order of the grid's
   nodes, as soon as the replies before it have come.
4. `finalize` returns the next global model. It is not called, and what was accumulated is dropped,
   when fewer than ``min-replies`` replies were valid.

Which clients take part is not the strategy's decision: the grid that it is given names the nodes of
the round's cohort only, so that one seeded sampler serves every strategy.
"""

import logging
import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Generic

import numpy as np
from flwr.app import (
    ArrayRecord,
    ConfigRecord,
    Context,
    Error,
    Message,
    MessageType,
    MetricRecord,
    RecordDict,
)
from flwr.clientapp.typing import ClientAppCallable
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from strategies.aggregation import Arrays, BufferMean, finite_or_sent, without
from strategies.flower_arrays import array_record, from_record, to_record
from strategies.metrics import accuracy_spread, client_accuracies, mean_metrics, partial_metrics
from strategies.reply_validation import (
    ARRAYS,
    CONFIG,
    MAX_TRACEBACK,
    ClientReport,
    ClientUpdate,
    Content,
    ReplyBounds,
    ReplyError,
    ResyncError,
    error_reason,
    printable,
    read_report,
    shorten,
)

logger = logging.getLogger("fedavg_app.strategies")

# Clients choose the texts of their errors, so what is logged of them is bounded.
MAX_LOGGED_TRACEBACKS = 10

SMALLER_RATES = "give smaller rates in strategy-args"  # what helps where a model is not finite


class StrategyError(RuntimeError):
    """A strategy cannot go on; the cause, if there is one, is what it raised."""


@dataclass(frozen=True)
class RunSettings:
    """What a strategy may know of the run.

    Attributes:
        num_clients: K.
        seed: The run's seed, for random numbers of the server's end.
        min_replies: The valid replies that a round needs.
        bounds: Bounds on the numbers of a reply.
        buffers: The names of the model's arrays that are sent as they are: those that gradients do
            not train, such as batch normalisation's running statistics and counters, and those that
            stay on the clients. The next model has the clients' mean of them, whatever the
            strategy. Arrays that are fixed, and further names of one array, do not travel.
    """

    num_clients: int = 0
    seed: int = 0
    min_replies: int = 1
    bounds: ReplyBounds = field(default_factory=ReplyBounds)
    buffers: tuple[str, ...] = ()


@dataclass(frozen=True)
class RoundOutcome:
    """What the replies of one round, or of one evaluation, amount to.

    Attributes:
        model: The next global model; None where the round leaves it as it is.
        metrics: The clients' metrics, aggregated; None without a usable reply.
        partial: For metrics that not all clients have a usable value of: "3 of 4 clients".
        rejected: The reason, by node id, for every reply that was rejected.
        formula_bits_up: What the valid training replies cost by the papers' formulas, in bits.
        privacy: The "epsilon" and "epsilon-replace-one" at a "delta" that the run has spent so far;
            empty if not counted.
        accuracies: Of an evaluation, each client's accuracy by node, in [0, 1].
    """

    model: ArrayRecord | None = None
    metrics: MetricRecord | None = None
    partial: Mapping[str, str] = field(default_factory=dict)
    rejected: Mapping[int, ReplyError] = field(default_factory=dict)
    formula_bits_up: float = 0.0
    privacy: Mapping[str, float] = field(default_factory=dict)
    accuracies: Mapping[int, float] = field(default_factory=dict)

    @property
    def num_resyncing(self) -> int:
        """How many clients lost their state, which is no sign of a failing run."""
        return sum(isinstance(error, ResyncError) for error in self.rejected.values())


class FederatedStrategy(Strategy, Generic[Content]):
    """A Flower `Strategy` whose round is configure, validate, accumulate, finalize.

    Attributes:
        train_type: The message type of a training message: "train" runs the task client's `fit`,
            "train.gradient" its `gradient`.
        local_work: Human-readable description of the local work, where that is not SGD with the
            config's epochs or steps and its batch size; else empty.
        plain_sgd: Whether the method is defined for SGD without momentum only.
        clips_on_clients: Whether client mods clip the update of all that a client sends.
        counts_privacy: Whether it counts the privacy that a run spends.
        settings: What the strategy may know of the run; set before the first round.
        server_round: The number of the round configured last, from 1.
        model: The global model that the round's training messages carry.
        config: The config that they carry.
        buffer_mean: The mean of the clients' buffers over the replies accumulated so far.
    """

    train_type: ClassVar[str] = MessageType.TRAIN
    local_work: ClassVar[str] = ""
    plain_sgd: bool = False
    clips_on_clients: bool = False
    counts_privacy: bool = False

    def __init__(self) -> None:
        self.settings = RunSettings()
        self.server_round = 0
        self.model = ArrayRecord()
        self.config = ConfigRecord()
        self.buffer_mean = BufferMean({})
        self._logged_tracebacks: set[str] = set()

    def check_model(self, model: ArrayRecord) -> None:
        """Check before round 1 that all trained arrays are of real floating-point numbers.

        Raises:
            ValueError: One is not.
        """
        for name, array in model.items():
            if name not in self.settings.buffers and np.dtype(array.dtype).kind != "f":
                raise ValueError(
                    f"array {name!r} is {array.dtype}: give a model whose trained arrays are real "
                    "floating-point numbers"
                )

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return one training message for each node of the grid, with the full model."""
        self.start_round(server_round, arrays, config)
        return broadcast(self.train_type, server_round, arrays, config, grid)

    @abstractmethod
    def validate(self, reply: Message) -> ClientUpdate[Content]:
        """Return the content of a reply that has no error. The strategy's state is not changed.

        Raises:
            ReplyError: The reply must not be used.
        """

    @abstractmethod
    def accumulate(self, update: ClientUpdate[Content]) -> None:
        """Add one valid update to the round's sum."""

    @abstractmethod
    def finalize(self, model: Arrays) -> Arrays | None:
        """Return the trained arrays of the next global model from what was accumulated.

        Only this step may change what the strategy keeps from round to round. The buffers of the
        next model are `buffer_mean`.

        Args:
            model: The trained arrays of the current global model, as they were sent.

        Returns:
            Arrays with the same names, shapes and dtypes; None leaves the model as it is.

        Raises:
            ReplyError: No model can be made of the replies; all are rejected for that reason.
        """

    def reset(self) -> None:
        """Drop what was accumulated."""
        self.buffer_mean = BufferMean(from_record(self.buffers(self.model)))

    def client_mod(
        self, message: Message, context: Context, call_next: ClientAppCallable
    ) -> Message:
        """Handle a message on the client, around the ClientApp's handler ``call_next``.

        A strategy whose messages differ from plain model arrays overrides this. The client builds
        the strategy from the run config; it has no other state of the server's.
        """
        return call_next(message, context)

    def finish_round(
        self,
        server_round: int,
        replies: Iterable[Message],
        on_rejected: Callable[[int], None] | None = None,
    ) -> RoundOutcome:
        """Validate and accumulate the replies as they come, and finalize the round.

        The model stays as it is where fewer than ``min-replies`` replies were valid, or what
        `finalize` makes of them is not finite; then these are rejected, too.

        Args:
            server_round: The round's number, from 1.
            replies: At most one for each node; they may still be on their way.
            on_rejected: Called with the node of a rejected reply, before the next one is taken.

        Raises:
            StrategyError: `finalize` returned arrays of other names, shapes or dtypes.
        """

        def use(reply: Message) -> ClientReport:
            try:
                update = self.validate(reply)
            except ReplyError as error:
                self.on_rejected(reply.metadata.src_node_id, error)
                raise
            self.accumulate(update)
            return update.report

        self.reset()
        reports, rejected = self.screen(replies, use, on_rejected, self.settings.min_replies)
        model = None
        if reports:
            before = from_record(self.model)
            trained = without(before, self.settings.buffers)
            try:
                with np.errstate(over="ignore", invalid="ignore"):
                    buffers = self.buffer_mean.result()
                    check_finite(buffers, before)  # `finalize` changes what the strategy keeps
                    made = self.finalize(trained)
                if made is not None:
                    made = without(made, self.settings.buffers)
                    check_next_model(trained, made)
                    model = {**before, **made, **buffers}
            except ReplyError as error:
                rejected |= {report.node_id: error for report in reports}
                reports = []
        self.reset()
        _log_rejected(server_round, rejected)
        bits = len(reports) * self.reply_bits()
        privacy = self.privacy_spent()
        if model is None:
            return RoundOutcome(rejected=rejected, formula_bits_up=bits, privacy=privacy)
        metrics, partial = self.train_metrics(reports), partial_metrics(reports)
        _log_partial(server_round, "training", partial)
        return RoundOutcome(to_record(model), metrics, partial, rejected, bits, privacy)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Return the model and the metrics of `finish_round`, as Flower's strategies do."""
        outcome = self.finish_round(server_round, replies)
        return outcome.model, outcome.metrics

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return one evaluation message for each node of the grid."""
        return broadcast(MessageType.EVALUATE, server_round, arrays, config, grid)

    def finish_evaluation(
        self,
        server_round: int,
        replies: Iterable[Message],
        on_rejected: Callable[[int], None] | None = None,
    ) -> RoundOutcome:
        """Return the clients' metrics as means weighted by n_k, and the spread of accuracies.

        The arguments are those of `finish_round`.
        """
        reports, rejected = self.screen(replies, self.read_evaluation, on_rejected)
        _log_rejected(server_round, rejected)
        partial = partial_metrics(reports)
        _log_partial(server_round, "evaluation", partial)
        return RoundOutcome(
            metrics=self.evaluation_metrics(server_round, reports) if reports else None,
            partial=partial,
            rejected=rejected,
            accuracies=client_accuracies(reports),
        )

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Return the metrics of `finish_evaluation`, as Flower's strategies do."""
        return self.finish_evaluation(server_round, replies).metrics

    def read_evaluation(self, reply: Message) -> ClientReport:
        """Return the report in an evaluation reply that has no error, or raise a `ReplyError`."""
        return read_report(reply, self.settings.bounds)

    def evaluation_metrics(
        self, server_round: int, reports: Sequence[ClientReport]
    ) -> MetricRecord:
        """Return the metrics of an evaluation from the reports of its valid replies."""
        del server_round
        return MetricRecord({**mean_metrics(reports), **accuracy_spread(reports)})

    def buffers(self, model: ArrayRecord) -> ArrayRecord:
        """Return the model's arrays that are buffers (`RunSettings.buffers`)."""
        return array_record({name: model[name] for name in self.settings.buffers})

    def trained(self, model: ArrayRecord) -> ArrayRecord:
        """Return the model's arrays that are trained, that is those that are no buffers."""
        return array_record(without(model, self.settings.buffers))

    def train_metrics(self, reports: Sequence[ClientReport]) -> MetricRecord | None:
        """Return the round's training metrics, as `mean_metrics` does."""
        return mean_metrics(reports)

    def privacy_spent(self) -> dict[str, float]:
        """Return what `RoundOutcome.privacy` says; by default nothing is counted."""
        return {}

    def round_bits(self, messages: Sequence[Message]) -> float:
        """Return what a round's training messages cost by the papers' formulas, in bits."""
        return len(messages) * model_bits(self.model)

    def reply_bits(self) -> float:
        """Return what one training reply costs by the papers' formulas: 32 bits an entry."""
        return model_bits(self.model)

    def forget_clients(self) -> None:
        """Called when all clients have lost their states; by default it does nothing."""

    def forget_client(self, node_id: int) -> None:
        """Called before a client replies as another node than this; by default it does nothing."""

    def on_rejected(self, node_id: int, error: ReplyError) -> None:
        """Called when a training reply was rejected; by default it does nothing."""

    def summary(self) -> None:
        """Log the first line of the strategy's docstring."""
        logger.info("%s", (type(self).__doc__ or type(self).__name__).split("\n")[0])

    def start_round(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord) -> None:
        """Keep what the round's messages carry, for the steps that follow."""
        self.server_round, self.model, self.config = server_round, arrays, config

    def _log_traceback(self, node: int, error: Error) -> None:
        """Log the traceback of a client's error, each once and the first few only.

        Its lines are indented, since a client could forge log lines.
        """
        lines = (error.reason or "").strip()[-MAX_TRACEBACK:].splitlines()
        text = "\n".join(f"    {printable(line)}" for line in lines)
        is_new = text not in self._logged_tracebacks
        if len(lines) > 1 and is_new and len(self._logged_tracebacks) < MAX_LOGGED_TRACEBACKS:
            self._logged_tracebacks.add(text)
            logger.debug("node %d failed:\n%s", node, text)

    def screen(
        self,
        replies: Iterable[Message],
        read: Callable[[Message], ClientReport],
        on_rejected: Callable[[int], None] | None = None,
        at_least: int = 1,
    ) -> tuple[list[ClientReport], dict[int, ReplyError]]:
        """Return the reports of the valid replies, and why each of the others is rejected.

        A reply that carries an error is rejected with that error's reason, and so is the second
        reply of a node. Where fewer than ``at_least`` are valid, all are rejected.
        """
        reports: list[ClientReport] = []
        rejected: dict[int, ReplyError] = {}
        seen: set[int] = set()
        for reply in replies:
            node = reply.metadata.src_node_id
            try:
                if reply.has_error():
                    self._log_traceback(node, reply.error)
                    raise ReplyError(error_reason(reply.error))
                if node in seen:
                    raise ReplyError("a second reply from the same node")
                reports.append(read(reply))
            except ReplyError as error:
                rejected[node] = error
                if on_rejected is not None:
                    on_rejected(node)
            seen.add(node)
        if len(reports) < at_least:
            too_few = f"too few usable replies: {len(reports)}, min-replies is {at_least}"
            rejected |= {report.node_id: ReplyError(too_few) for report in reports}
            reports = []
        return reports, rejected


def broadcast(
    message_type: str, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
) -> list[Message]:
    """Return one message for each node of the grid, all with the same model and config."""
    config["server-round"] = server_round
    # A RecordDict for each message: a client mod may replace the records of its message.
    return [
        Message(
            RecordDict({ARRAYS: arrays, CONFIG: config}),
            dst_node_id=node,
            message_type=message_type,
        )
        for node in grid.get_node_ids()
    ]


def check_next_model(before: Arrays, after: Arrays) -> None:
    """Check what `FederatedStrategy.finalize` returned against the model that was sent.

    Raises:
        StrategyError: An array is missing or added, or has another shape or dtype.
        ReplyError: An array has NaN or infinite values that were not sent.
    """
    for name in before | after:
        wanted, found = (
            f"{model[name].dtype} {model[name].shape}" if name in model else "missing"
            for model in (before, after)
        )
        if found != wanted:
            raise StrategyError(f"array {name!r} that finalize returned is {found}, not {wanted}")
    check_finite(after, before)


def check_finite(after: Arrays, before: Arrays) -> None:
    """Check that arrays of the next model have only finite values, or values that were sent.

    Raises:
        ReplyError: They have others.
    """
    for name, array in after.items():
        if not finite_or_sent(array, before[name]):
            reason = f"array {name!r} of the next model would have NaN or infinite values"
            raise ReplyError(f"{reason}; {SMALLER_RATES}")


def model_bits(arrays: ArrayRecord) -> float:
    """Return the bits of an uncompressed model: 32 for every entry of its arrays."""
    return float(32 * sum(math.prod(array.shape) for array in arrays.values()))


def _log_partial(server_round: int, purpose: str, partial: Mapping[str, str]) -> None:
    for name, number in partial.items():
        text = "round %d: %s metric %s is that of %s: the others' is missing, not finite or absurd"
        logger.warning(text, server_round, purpose, printable(shorten(name)), number)


def _log_rejected(server_round: int, rejected: Mapping[int, ReplyError]) -> None:
    for node, reason in rejected.items():
        logger.warning("round %d: reply of node %d rejected: %s", server_round, node, reason)
