"""The clients that take part in a round, where a selection or the strategy chooses them."""

import logging
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable

from ..method import Method
from ..selection import Candidate, make_selection
from .exchange import Exchange
from .reply_errors import ReplyError
from .runner import StrategyError
from .values import ClientReport, Round, RunSettings

logger = logging.getLogger("fedavg_app.strategies")


@runtime_checkable
class AvailableClients(Protocol):
    """A grid that says which clients may take part, by rising number, and how many are wanted."""

    available: Sequence[Candidate]
    count: int


@dataclass(frozen=True)
class Chosen:
    """The clients that take part in a round.

    Attributes:
        times: How often each counts, by node, in the clients' order.
        rejected: Why answers of candidates are not used, by node.
    """

    times: Mapping[int, int]
    rejected: Mapping[int, ReplyError] = field(default_factory=dict)


class Participants:
    """Selects the clients of each round, by what their earlier reports say of them.

    Args:
        strategy: It chooses if it overrides `Method.select`, otherwise the run's selection does.
        settings: Of the run.

    Raises:
        ValueError, ImportError, AttributeError: As for `make_selection`, or the weights of the
            strategy do not go with the selection.
    """

    def __init__(self, strategy: Method, settings: RunSettings) -> None:
        text = strategy.selection if settings.other_app else settings.selection
        self.selection = make_selection(text)
        if self.selection and self.selection.with_replacement and strategy.weights != "uniform":
            fix = "give the strategy's argument weights = 'uniform'"
            raise ValueError(f"selection = {text!r}: it draws clients by their examples; {fix}")
        self._select = strategy.select if type(strategy).select is not Method.select else None
        self._clients: dict[int, Candidate] = {}  # of this run's nodes, by node
        self._known: dict[int, Candidate] = {}  # with their last report, by number

    @property
    def are_selected(self) -> bool:
        """Whether the clients of a round are not drawn uniformly by the app."""
        return self._select is not None or self.selection is not None

    def select(
        self,
        now: Round,
        available: Sequence[Candidate],
        count: int,
        ask: Callable[[Sequence[int]], Exchange],
    ) -> Generator[Exchange, None, Chosen]:
        """Yield the exchange with candidates, if some are asked; return who takes part.

        Args:
            now: The round.
            available: The clients that may take part, by rising number.
            count: How many are wanted.
            ask: Returns the exchange that asks nodes for their loss.

        Raises:
            StrategyError: The selection returned other things than places.
        """
        clients = [self._with_memory(client) for client in available]
        rejected: Mapping[int, ReplyError] = {}
        select = self._select
        if select is None:
            assert self.selection is not None
            select = self.selection.select
            if places := self.selection.candidates(now, clients, count):
                clients = [clients[place] for place in places]
                exchange = ask([client.node for client in clients])
                yield exchange
                rejected = exchange.rejected
                for node, reason in rejected.items():
                    logger.warning("round %d: node %d: no loss: %s", now.number, node, reason)
                reports = {report.node_id: report for report in exchange.reports}
                clients = [
                    replace(client, num_examples=own.num_examples, metrics=own.metrics)
                    for client in clients
                    if (own := reports.get(client.node)) is not None
                ]
        times = Counter(map(int, select(now, clients, min(count, len(clients)))))
        if not all(0 <= place < len(clients) for place in times):
            raise StrategyError(f"select returned places that are not of {len(clients)} clients")
        chosen = [clients[place] for place in sorted(times)]
        self._clients |= {client.node: client for client in chosen}
        counted = {clients[place].node: times[place] for place in sorted(times)}
        return Chosen(counted, rejected)

    def note(self, now: Round, reports: Sequence[ClientReport]) -> None:
        """Keep what clients reported of their training."""
        for report in reports:
            if (client := self._clients.get(report.node_id)) is not None:
                self._known[client.number] = replace(
                    client, num_examples=report.num_examples, metrics=dict(report.metrics),
                    last_round=now.number,
                )  # fmt: skip

    def _with_memory(self, client: Candidate) -> Candidate:
        """Return a client with what it reported last."""
        known = self._known.get(client.number)
        return replace(known, node=client.node) if known else client
