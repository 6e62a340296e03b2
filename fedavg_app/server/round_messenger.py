"""Carries the messages of a round to its cohort, and the replies back."""

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from flwr.app import Message
from flwr.serverapp import Grid

from fedavg_app.config import RunConfig
from fedavg_app.server.awaited_replies import AwaitedReplies, ClientTimeOf
from fedavg_app.server.client_sampling import (
    AvailableGrid,
    CohortGrid,
    Facts,
    cohort_size,
    sample_clients,
    with_over_selection,
)
from fedavg_app.server.nodes import Nodes
from fedavg_app.server.polling import poll_replies, send
from fedavg_app.server.traffic import MessagesInFlight, Traffic
from fedavg_app.virtual_clock import VirtualClock
from strategies.rounds.exchange import Exchange, Exchanges, advance
from strategies.rounds.values import RoundOutcome
from strategies.selection import Candidate

# Messages expire this long after the round's deadline.
EXPIRY_SECONDS = 1.0


class RoundMessenger:
    """Draws the cohorts of a run, sends messages to them, and drops late replies.

    Args:
        grid: Carries the messages.
        nodes: The connected nodes.
        config: How many clients take part, and how long they are waited for.
        clock: Counts the time of training; None for the wall clock.
        in_flight: Training messages whose late replies count in later rounds; None where they do
            not. It is kept up to date.
        facts: What is known of the clients, if the strategy chooses among them; else None.
    """

    def __init__(
        self,
        grid: Grid,
        nodes: Nodes,
        config: RunConfig,
        clock: VirtualClock | None = None,
        in_flight: MessagesInFlight | None = None,
        facts: Facts | None = None,
    ) -> None:
        self._facts = facts
        self._grid, self._nodes, self._config, self._clock = grid, nodes, config, clock
        self._in_flight = in_flight
        if in_flight:  # of a run before it was resumed, without its replies on the wall clock
            for key in [key for key, sent in in_flight.items() if sent.reply is None]:
                del in_flight[key]
        # The messages whose replies were no longer waited for: by id, when they expire.
        self._late: dict[str, float] = {}

    def cohort(self, server_round: int, purpose: str, elapsed: float = 0.0) -> CohortGrid:
        """Return the grid with the nodes of the clients that take part, in the clients' order.

        For "train" these are a C-fraction of all K clients and the share of `over_selection`, less
        those that still work on a message; fewer where fewer are connected, or on-line after
        ``elapsed`` virtual seconds. If the strategy chooses, it is the grid with all clients that
        may take part.
        """
        size, working = self._num_wanted(purpose), set[int]()
        if purpose == "train":
            size = with_over_selection(size, self._config.over_selection)
            working = {sent.node for sent in (self._in_flight or {}).values()}
            size = max(size - len(working), 1)
        nodes, connected = self._nodes, self._nodes.clients
        if working:
            connected = [each for each in connected if nodes.node(each) not in working]
        if purpose == "train" and self._clock is not None:
            connected = self._clock.online(connected, elapsed)
        if purpose == "train" and (facts := self._facts) is not None:
            available = [
                Candidate(
                    nodes.node(client), client, facts.num_examples(client), facts.device(client)
                )
                for client in connected
            ]
            return AvailableGrid(self._grid, available, size)
        clients = sample_clients(self._config.seed, server_round, purpose, size, connected)
        return CohortGrid(self._grid, [nodes.node(client) for client in clients])

    def carry(
        self,
        begin: Callable[[CohortGrid], Exchanges],
        server_round: int,
        purpose: str,
        take: Callable[[Exchange, Message], bool] = Exchange.take,
        elapsed: float = 0.0,
    ) -> tuple[RoundOutcome, Traffic]:
        """Carry the messages of a round; return its outcome, and what its messages cost.

        Args:
            begin: Returns the round's exchanges with the clients that take part.
            server_round: The round's number.
            purpose: "train" or "evaluate".
            take: Gives an exchange a reply; returns whether it is usable.
            elapsed: The virtual seconds of the rounds before.
        """
        traffic, cohort = Traffic(), self.cohort(server_round, purpose, elapsed)
        exchanges = begin(cohort)
        exchange, outcome = advance(exchanges)
        while exchange is not None:
            awaited = self._send(exchange, cohort, server_round, purpose)
            cost = awaited.collect(partial(take, exchange))
            traffic += cost if exchange.is_main else replace(cost, num_messages=0, num_sent=0)
            exchange, outcome = advance(exchanges)
        assert outcome is not None
        return outcome, traffic

    def _send(
        self, exchange: Exchange, cohort: CohortGrid, server_round: int, purpose: str
    ) -> AwaitedReplies:
        """Send the messages of an exchange; return what their replies are read from."""
        self._drop_late_replies()
        messages = exchange.messages
        for message in messages:
            message.metadata.group_id = str(server_round)
        if isinstance(cohort, AvailableGrid):
            cohort = CohortGrid(self._grid, [each.metadata.dst_node_id for each in messages])
        timeout, time_of = self._config.round_timeout or None, None
        if self._clock is not None:
            # The timeout is of virtual seconds, and only for training.
            if purpose == "train":
                time_of = self._client_time(self._clock, server_round, cohort)
            else:
                timeout = None
        elif timeout is not None:
            for message in messages:
                # A slow node must not work through messages of rounds that are over, and so be late
                # with all that follow.
                message.metadata.ttl = timeout + EXPIRY_SECONDS
        ids = send(cohort, messages)
        enough, in_flight = len(messages), None
        if exchange.is_main:
            enough = self._num_wanted(purpose)
            in_flight = self._in_flight if purpose == "train" else None
        if in_flight:
            asked = {*cohort.get_node_ids(), *(sent.node for sent in in_flight.values())}
            clients = self._nodes.clients_of(asked)
            cohort = CohortGrid(self._grid, sorted(clients, key=clients.__getitem__))
        return AwaitedReplies(
            cohort, messages, ids, timeout, enough, self._late, time_of, in_flight
        )

    def _client_time(
        self, clock: VirtualClock, server_round: int, cohort: CohortGrid
    ) -> ClientTimeOf:
        clients = self._nodes.clients_of(cohort.get_node_ids())
        return lambda node, *sizes: clock.client_time(server_round, clients[node], *sizes)

    def _num_wanted(self, purpose: str) -> int:
        config = self._config
        fraction = config.fraction_train if purpose == "train" else config.fraction_evaluate
        return cohort_size(fraction, self._nodes.num_clients)

    def _drop_late_replies(self) -> None:
        """Fetch the replies that came after their round; a grid keeps them until they are fetched.

        An expired message gets no reply; it is asked for a last time.
        """
        if self._late:
            for replies in poll_replies(self._grid, list(self._late), timeout=0.0):
                for reply in replies:
                    self._late.pop(reply.metadata.reply_to_message_id, None)
        now = time.time()
        for message_id in [late for late, expiry in self._late.items() if expiry < now]:
            del self._late[message_id]
