"""Runs a strategy's rounds, in this project's app and in any other."""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid

from .exchange import Exchange, Exchanges, StartedRound
from .model import Model, usual_buffers
from .reply_errors import printable, shorten
from .values import Round, RoundOutcome, RunSettings, partial_metrics

logger = logging.getLogger("fedavg_app.strategies")

# A training fails after this many rounds in a row without a usable reply.
MAX_EMPTY_ROUNDS = 3


class StrategyError(RuntimeError):
    """A strategy cannot continue; the cause, if there is one, is its exception."""


class Runner(ABC):
    """Runs the rounds of a strategy. It is pickled with the strategy.

    Attributes:
        settings: Of the run.
        train_type, local_work, plain_sgd, takes_late: As in `strategies.method.Method`.
        in_flight: The messages, by id, whose replies may still arrive, if late replies count; the
            app keeps them here so that checkpoints have them.
        clips_on_clients: Whether client mods clip everything that a client sends.
        counts_privacy: Whether it counts the privacy that a run spends.
        selects_clients: Whether it chooses the clients of a round among those that are available,
            so that the grid names these (`strategies.rounds.client_selection.AvailableClients`).
    """

    train_type: str = "train"
    local_work: str = ""
    plain_sgd: bool = False
    takes_late: bool = False
    clips_on_clients: bool = False
    counts_privacy: bool = False
    selects_clients: bool = False

    def __init__(self, settings: RunSettings | None = None) -> None:
        self.settings = settings or RunSettings()
        self._now: Round | None = None
        self.in_flight: dict[str, Any] = {}
        self._warned = set[str]()  # of what `warn_once` has warned
        self._started: StartedRound | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Return the state that outlasts a round."""
        return {**vars(self), "_now": None, "_started": None}

    @property
    def now(self) -> Round:
        """The round that began last."""
        assert self._now is not None
        return self._now

    @property
    def last_round(self) -> int:
        """The number of the round that began last; 0 before the first."""
        return self._now.number if self._now is not None else 0

    def read_model(self, arrays: ArrayRecord) -> Model:
        """Return the model that is sent to clients.

        Raises:
            ValueError: A trained array is not of real floating-point numbers, or there is none.
        """
        buffers = self.settings.buffers
        return Model.read(arrays, usual_buffers(arrays) if buffers is None else buffers)

    @abstractmethod
    def round(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Exchanges:
        """Yield the exchanges of a round of training; return its outcome.

        The model does not change if fewer than ``min-replies`` replies are used, or if the next
        model would not be finite; then these replies are rejected, too.

        Args:
            server_round: The round's number, from 1.
            arrays: The model.
            config: What clients are told.
            grid: Names the nodes that take part.

        Raises:
            StrategyError: The strategy failed.
        """

    @abstractmethod
    def evaluation(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Exchanges:
        """Yield the exchange of an evaluation by clients; return their metrics."""

    def tested(
        self, server_round: int, exchange: Exchange, metrics: Callable[[], MetricRecord]
    ) -> Exchanges:
        """Yield the exchange of an evaluation; return the metrics of the replies that are used."""
        yield exchange
        return RoundOutcome(
            metrics=metrics() if exchange.reports else None,
            partial=self.log(exchange, server_round, "evaluation"),
            rejected=exchange.rejected,
            reports=exchange.reports,
        )

    def log(self, exchange: Exchange, server_round: int, purpose: str) -> dict[str, str]:
        """Log the rejected replies, and a partial metric once; return the `partial_metrics`."""
        for node, reason in exchange.rejected.items():
            logger.warning("round %d: reply of node %d rejected: %s", server_round, node, reason)
        partial = partial_metrics(exchange.reports)
        for name, number in partial.items():
            metric = f"{purpose} metric {printable(shorten(name))}"
            text = f"is the mean of {number}: the others sent no usable value; said once"
            self.warn_once(metric, f"round {server_round}: {metric} {text}")
        return partial

    def warn_once(self, what: str, text: str) -> None:
        """Log a warning, unless one of the same thing was logged in this training."""
        if what not in self._warned:
            self._warned.add(what)
            logger.warning("%s", text)

    # A round where Flower's `Strategy.start` carries its messages.

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """Begin a round; return one training message for each node that takes part."""
        exchanges = self.round(server_round, arrays, config, grid)
        self._started = StartedRound(exchanges, grid, self.counted)
        return self._started.messages

    def finish_round(self, replies: Iterable[Message]) -> RoundOutcome:
        """Read the replies as they arrive, one for each node; return the round's outcome."""
        assert self._started is not None
        return self._started.finish(replies)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """Begin an evaluation; return one message for each node that takes part."""
        exchanges = self.evaluation(server_round, arrays, config, grid)
        self._started = StartedRound(exchanges, grid, self.counted)
        return self._started.messages

    def finish_evaluation(self, replies: Iterable[Message]) -> RoundOutcome:
        """Return the clients' metrics, together and each one's."""
        assert self._started is not None
        return self._started.finish(replies)

    def counted(self, exchange: Exchange, replies: Iterable[Message]) -> Iterable[Message]:
        """Return the replies of an exchange, which a runner may count as they are read."""
        return replies

    def reply_bits(self, node: int) -> float:
        """Return the bits of a node's training reply by the papers' formulas."""
        return 32.0 * self.now.model.size

    def forget_clients(self) -> None:  # noqa: B027 - Flower's strategies keep nothing of clients
        """Called when all clients have lost their memories; by default it does nothing."""

    @abstractmethod
    def summary(self) -> None:
        """Log what the strategy is."""
