"""Runs a strategy's rounds, in this project's app and in any other.

It turns the replies of a round into a `RoundOutcome`: invalid replies are rejected, and the others
are used in the order in which they arrive.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Error, Message, MetricRecord
from flwr.serverapp import Grid

from .aggregation import BufferMean, finite_or_sent
from .client_report import ClientReport
from .metrics import partial_metrics
from .model import Array, Model, Vector, usual_buffers
from .reply_errors import MAX_TRACEBACK, ReplyError, error_reason, printable, shorten
from .rounds import Round, RoundOutcome, RunSettings

logger = logging.getLogger("fedavg_app.strategies")

# Clients choose the texts of their errors, so what is logged of them is bounded.
MAX_LOGGED_TRACEBACKS = 10
SMALLER_RATES = "give smaller rates in strategy-args"  # what helps where a model is not finite

# Called with the node of a rejected reply, before the next one is taken.
OnRejected = Callable[[int], None]
# Reads a reply that has no error, and raises a `ReplyError` if it must not be used.
Use = Callable[[Message], ClientReport]
# Makes the next model's vector (None leaves the model unchanged) and the metrics from the reports
# of the used replies. It raises a `ReplyError` if no model can be made.
Finish = Callable[[list[ClientReport]], tuple[Vector | None, MetricRecord | None]]
FinishEvaluation = Callable[[list[ClientReport]], MetricRecord | None]


def sender(reply: Message) -> int:
    """Return the node that sent a reply."""
    return reply.metadata.src_node_id


class Screening:
    """Screens the replies of a round, or of an evaluation.

    Args:
        node_of: Returns the node that a reply is of.

    Attributes:
        reports: Of the replies that are used.
        rejected: The reason, by node, for every reply that is not.
    """

    # The tracebacks that this process has logged.
    logged: ClassVar[set[str]] = set()

    def __init__(self, node_of: Callable[[Message], int] = sender) -> None:
        self._node_of = node_of
        self.reports: list[ClientReport] = []
        self.rejected: dict[int, ReplyError] = {}

    def run(
        self,
        replies: Iterable[Message],
        use: Use,
        on_rejected: OnRejected | None,
        at_least: int = 1,
    ) -> None:
        """Pass the replies to ``use`` as they arrive, except errors and a node's second reply.

        If fewer than ``at_least`` are valid, all are rejected.
        """
        seen: set[int] = set()
        for reply in replies:
            node = self._node_of(reply)
            try:
                if reply.has_error():
                    self._log_traceback(node, reply.error)
                    raise ReplyError(error_reason(reply.error))
                if node in seen:
                    raise ReplyError("a second reply from the same node")
                self.reports.append(use(reply))
            except ReplyError as error:
                self.rejected[node] = error
                if on_rejected is not None:
                    on_rejected(node)
            seen.add(node)
            del reply  # as large as the model, while the next one is waited for
        if len(self.reports) < at_least:
            few = f"too few usable replies: {len(self.reports)}, min-replies is {at_least}"
            self.reject_all(ReplyError(few))

    def reject_all(self, error: ReplyError) -> None:
        """Reject the replies that were used so far."""
        self.rejected |= {report.node_id: error for report in self.reports}
        self.reports = []

    def log(self, server_round: int, purpose: str) -> dict[str, str]:
        """Log the rejected replies; return and log the `partial_metrics` of the others."""
        for node, reason in self.rejected.items():
            logger.warning("round %d: reply of node %d rejected: %s", server_round, node, reason)
        partial = partial_metrics(self.reports)
        for name, number in partial.items():
            text = "round %d: %s metric %s is that of %s: the others' is missing, not finite or "
            text += "absurd"
            logger.warning(text, server_round, purpose, printable(shorten(name)), number)
        return partial

    def _log_traceback(self, node: int, error: Error) -> None:
        """Log the traceback of a client's error, each once and the first few only."""
        lines = (error.reason or "").strip()[-MAX_TRACEBACK:].splitlines()
        # Indented, since a client could forge log lines.
        text = "\n".join(f"    {printable(line)}" for line in lines)
        is_new = text not in self.logged and len(self.logged) < MAX_LOGGED_TRACEBACKS
        if len(lines) > 1 and is_new:
            self.logged.add(text)
            logger.debug("node %d failed:\n%s", node, text)


class StrategyError(RuntimeError):
    """A strategy cannot continue; the cause, if there is one, is its exception."""


class Runner(ABC):
    """Runs the rounds of a strategy. It is pickled with the strategy.

    Attributes:
        settings: Of the run.
        train_type, local_work, plain_sgd: As in `strategies.base.FederatedStrategy`.
        takes_late: As in `strategies.base.FederatedStrategy`.
        in_flight: The messages, by id, whose replies may still arrive, if late replies count; the
            app keeps them here so that checkpoints have them.
        clips_on_clients: Whether client mods clip everything that a client sends.
        counts_privacy: Whether it counts the privacy that a run spends.
    """

    train_type: str = "train"
    local_work: str = ""
    plain_sgd: bool = False
    takes_late: bool = False
    clips_on_clients: bool = False
    counts_privacy: bool = False

    def __init__(self, settings: RunSettings | None = None) -> None:
        self.settings = settings or RunSettings()
        self._now: Round | None = None
        self.in_flight: dict[str, Any] = {}

    @property
    def now(self) -> Round:
        """The round configured last."""
        assert self._now is not None
        return self._now

    def __getstate__(self) -> dict[str, Any]:
        """Return the state that outlasts a round."""
        return {**vars(self), "_now": None}

    def read_model(self, arrays: ArrayRecord) -> Model:
        """Return the model that is sent to clients.

        Raises:
            ValueError: A trained array is not of real floating-point numbers, or there is none.
        """
        buffers = self.settings.buffers
        return Model.read(arrays, usual_buffers(arrays) if buffers is None else buffers)

    @abstractmethod
    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """Return one training message for each node that takes part."""

    @abstractmethod
    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """Return one evaluation message for each node that takes part."""

    def finish_round(
        self, server_round: int, replies: Iterable[Message], on_rejected: OnRejected | None = None
    ) -> RoundOutcome:
        """Read the replies as they arrive, and return the round's outcome.

        The model does not change if fewer than ``min-replies`` replies were valid, or if the next
        model would not be finite; then these replies are rejected, too.

        Args:
            server_round: The round's number, from 1.
            replies: At most one for each node; they may still be on their way.
            on_rejected: Called with the node of a rejected reply, before the next one is taken.

        Raises:
            StrategyError: The strategy failed.
        """
        buffers = BufferMean(self.now.model.buffers)
        use, finish = self._begin(buffers)
        screening = Screening(self.node_of)
        screening.run(replies, use, on_rejected, self.settings.min_replies)
        model, metrics = None, None
        if screening.reports:
            try:
                model, metrics = self._next_model(screening.reports, finish, buffers)
            except ReplyError as error:
                screening.reject_all(error)
        return RoundOutcome(
            model=None if model is None else model.record,
            metrics=metrics,
            partial=screening.log(server_round, "training"),
            rejected=screening.rejected,
            formula_bits_up=sum(self.reply_bits(report.node_id) for report in screening.reports),
            privacy=self.privacy_spent(),
        )

    def finish_evaluation(
        self, server_round: int, replies: Iterable[Message], on_rejected: OnRejected | None = None
    ) -> RoundOutcome:
        """Return the clients' metrics, together and each one's; as for `finish_round`."""
        use, finish = self._begin_evaluation(server_round)
        screening = Screening(self.node_of)
        screening.run(replies, use, on_rejected)
        return RoundOutcome(
            metrics=finish(screening.reports) if screening.reports else None,
            partial=screening.log(server_round, "evaluation"),
            rejected=screening.rejected,
            reports=screening.reports,
        )

    def round_bits(self, nodes: Sequence[int]) -> float:
        """Return the bits of the round's messages by the papers' formulas."""
        return len(nodes) * 32.0 * self.now.model.size

    def reply_bits(self, node: int) -> float:
        """Return the bits of a node's training reply by the papers' formulas."""
        return 32.0 * self.now.model.size

    def node_of(self, reply: Message) -> int:
        """Return the node that a reply is of."""
        return sender(reply)

    def privacy_spent(self) -> dict[str, float]:
        """Return `RoundOutcome.privacy`; by default nothing is counted."""
        return {}

    def forget_clients(self) -> None:  # noqa: B027 - Flower's strategies keep nothing of clients
        """Called when all clients have lost their memories; by default it does nothing."""

    @abstractmethod
    def summary(self) -> None:
        """Log what the strategy is."""

    @abstractmethod
    def _begin(self, buffers: BufferMean) -> tuple[Use, Finish]:
        """Return functions that use a reply, buffers included, and that end the round."""

    @abstractmethod
    def _begin_evaluation(self, server_round: int) -> tuple[Use, FinishEvaluation]:
        """Return functions that use a reply, and that end the evaluation."""

    def _next_model(
        self, reports: list[ClientReport], finish: Finish, buffers: BufferMean
    ) -> tuple[Model | None, MetricRecord | None]:
        before = self.now.model
        with np.errstate(over="ignore", invalid="ignore"):
            means = buffers.result()
        for name, array in means.items():
            check_finite(name, array, before.buffers[name])
        vector, metrics = finish(reports)  # last: it changes what the strategy keeps
        if vector is None:
            return None, None
        return Model(before.layout, vector, means, before.order), metrics


def nodes_of(messages: Iterable[Message]) -> list[int]:
    """Return the nodes that the messages are for."""
    return [message.metadata.dst_node_id for message in messages]


def check_finite(name: str, array: Array, sent: Array) -> None:
    """Check that an array of the next model has only finite values or values that were sent.

    Raises:
        ReplyError: It has others.
    """
    if not finite_or_sent(array, sent):
        reason = f"array {name!r} of the next model would have NaN or infinite values"
        raise ReplyError(f"{reason}; {SMALLER_RATES}")
