"""The runner of a strategy's rounds, the same in this project's app and in any other.

It turns the replies of a round into a `RoundOutcome`: those that must not be used are rejected, and
the others are taken in the order in which they come.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid

from strategies.aggregation import BufferMean, finite_or_sent
from strategies.model import Array, Model, Vector, usual_buffers
from strategies.reply_validation import ClientReport, ReplyError
from strategies.rounds import Round, RoundOutcome, RunSettings
from strategies.screening import OnRejected, Screening

SMALLER_RATES = "give smaller rates in strategy-args"  # what helps where a model is not finite

# Reads a reply that has no error, and raises a `ReplyError` where it must not be used.
Use = Callable[[Message], ClientReport]
# Makes of the reports of those that were used the next model's vector, None where the round leaves
# the model as it is, and the metrics. It raises a `ReplyError` where no model can be made.
Finish = Callable[[list[ClientReport]], tuple[Vector | None, MetricRecord | None]]
FinishEvaluation = Callable[[list[ClientReport]], MetricRecord | None]


class StrategyError(RuntimeError):
    """A strategy cannot go on; the cause, if there is one, is what it raised."""


class Runner(ABC):
    """Runs the rounds of one strategy. It is pickled with the strategy.

    Attributes:
        settings: Of the run.
        train_type, local_work, plain_sgd: As in `strategies.base.FederatedStrategy`.
        clips_on_clients: Whether client mods clip the update of all that a client sends.
        counts_privacy: Whether it counts the privacy that a run spends.
    """

    train_type: str = "train"
    local_work: str = ""
    plain_sgd: bool = False
    clips_on_clients: bool = False
    counts_privacy: bool = False

    def __init__(self, settings: RunSettings | None = None) -> None:
        self.settings = settings or RunSettings()
        self._now: Round | None = None

    @property
    def now(self) -> Round:
        """The round configured last."""
        assert self._now is not None
        return self._now

    def __getstate__(self) -> dict[str, Any]:
        """Return what lasts longer than a round."""
        return {**vars(self), "_now": None}

    def read_model(self, arrays: ArrayRecord) -> Model:
        """Return the model that clients are sent.

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
        """Read the replies as they come, and return what they amount to.

        The model stays as it is where fewer than ``min-replies`` replies were valid, or the next
        one would not be finite; then these are rejected, too.

        Args:
            server_round: The round's number, from 1.
            replies: At most one for each node; they may still be on their way.
            on_rejected: Called with the node of a rejected reply, before the next one is taken.

        Raises:
            StrategyError: The strategy failed.
        """
        buffers = BufferMean(self.now.model.buffers)
        use, finish = self._begin(buffers)
        screening = Screening()
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
            formula_bits_up=len(screening.reports) * self.reply_bits(),
            privacy=self.privacy_spent(),
        )

    def finish_evaluation(
        self, server_round: int, replies: Iterable[Message], on_rejected: OnRejected | None = None
    ) -> RoundOutcome:
        """Return the clients' metrics, together and each one's; as for `finish_round`."""
        use, finish = self._begin_evaluation(server_round)
        screening = Screening()
        screening.run(replies, use, on_rejected)
        return RoundOutcome(
            metrics=finish(screening.reports) if screening.reports else None,
            partial=screening.log(server_round, "evaluation"),
            rejected=screening.rejected,
            reports=screening.reports,
        )

    def round_bits(self, nodes: Sequence[int]) -> float:
        """Return what the round's messages cost by the papers' formulas, in bits."""
        return len(nodes) * 32.0 * self.now.model.size

    def reply_bits(self) -> float:
        """Return what one training reply costs by the papers' formulas, in bits."""
        return 32.0 * self.now.model.size

    def privacy_spent(self) -> dict[str, float]:
        """Return what `RoundOutcome.privacy` says; by default nothing is counted."""
        return {}

    def forget_clients(self) -> None:  # noqa: B027 - strategies of Flower's keep nothing of clients
        """Called when all clients have lost their memories; by default it does nothing."""

    @abstractmethod
    def summary(self) -> None:
        """Log what the strategy is."""

    @abstractmethod
    def _begin(self, buffers: BufferMean) -> tuple[Use, Finish]:
        """Return what takes each reply, which adds its buffers, and what ends the round."""

    @abstractmethod
    def _begin_evaluation(self, server_round: int) -> tuple[Use, FinishEvaluation]:
        """Return what takes each reply, and what ends the evaluation."""

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
    """Check that an array of the next model has only finite values, or values that were sent.

    Raises:
        ReplyError: It has others.
    """
    if not finite_or_sent(array, sent):
        reason = f"array {name!r} of the next model would have NaN or infinite values"
        raise ReplyError(f"{reason}; {SMALLER_RATES}")
