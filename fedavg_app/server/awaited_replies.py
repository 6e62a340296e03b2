"""Which replies a round waits for: until enough have come, or until its timeout."""

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from math import inf

from flwr.app import Message

from fedavg_app.flower_internals import MESSAGE_UNAVAILABLE
from fedavg_app.server.client_sampling import CohortGrid
from fedavg_app.server.polling import poll_replies
from fedavg_app.server.traffic import InFlight, MessagesInFlight, Traffic
from fedavg_app.virtual_clock import ClientTime
from strategies.rounds.flower_arrays import message_bytes
from strategies.rounds.reply_errors import error_reason

NO_REPLY = "no reply in time"
GONE = "its reply was refused, or its SuperNode unregistered; the SuperLink's log says why"

# On the virtual clock: when a reply arrives, its client's place, the time of its parts, the reply.
Arrival = tuple[float, int, ClientTime, Message]
# The virtual time of a round's client: node, participants, bytes down, bytes up -> time.
ClientTimeOf = Callable[[int, int, int, int], ClientTime]


class AwaitedReplies:
    """The replies to the messages of an exchange, on their way.

    Args:
        cohort: The grid, with the nodes in the clients' order.
        messages: One for each node.
        message_ids: Their ids; None for a message that could not be sent.
        timeout: Seconds after which replies are no longer waited for; None waits for all.
        enough: Usable replies after which the others are no longer waited for.
        late: Gets the ids of the messages whose replies were no longer waited for, and when they
            expire, in seconds of the epoch.
        time_of: When replies arrive; None for the wall clock.
        in_flight: Messages of earlier rounds whose replies count, and then those that have no reply
            once this round has ended; None where late replies do not count.

    Attributes:
        traffic: What the messages and their replies cost.
    """

    def __init__(
        self,
        cohort: CohortGrid,
        messages: Sequence[Message],
        message_ids: Sequence[str | None],
        timeout: float | None,
        enough: int,
        late: dict[str, float],
        time_of: ClientTimeOf | None = None,
        in_flight: MessagesInFlight | None = None,
    ) -> None:
        self._cohort, self._in_flight = cohort, in_flight
        self._timeout, self._enough, self._late, self._time_of = timeout, enough, late, time_of
        self._order = {node: number for number, node in enumerate(cohort.get_node_ids())}
        self._on_their_way: list[Arrival] = []
        self._nodes: dict[str, int] = {}
        self._bytes_down: dict[str, int] = {}
        self._expiry: dict[str, float] = {}
        self.traffic = traffic = Traffic(len(messages), exchanges=1)
        for message, message_id in zip(messages, message_ids, strict=True):
            node = message.metadata.dst_node_id
            if message_id is None:
                traffic.unanswered[node] = "the message could not be sent"
                continue
            self._nodes[message_id] = node
            self._expiry[message_id] = message.metadata.created_at + message.metadata.ttl
            self._bytes_down[message_id] = message_bytes(message)
        sizes = self._bytes_down.values()
        traffic.num_sent, traffic.bytes_down = len(sizes), sum(sizes)
        traffic.largest_down = max(sizes, default=0)
        for message_id, sent in (in_flight or {}).items():
            self._nodes[message_id], self._expiry[message_id] = sent.node, sent.expiry

    def collect(self, take: Callable[[Message], bool]) -> Traffic:
        """Wait for the replies, and take those that come in time, in the clients' order.

        Replies arrive in any order, and sums of floats depend on it. Each is taken as soon as those
        before it have come, so that it is decoded and added while others still train. Where fewer
        than all are enough, the replies that have come are taken once they could be enough, and
        others are waited for in place of rejected ones.

        Args:
            take: Uses a reply; returns whether it is usable.
        """
        order, usable = self._order, 0
        pending = sorted(self._nodes, key=lambda key: order.get(self._nodes[key], len(order)))
        arrived: dict[str, Message] = {}
        for replies in self._arrivals():
            arrived |= {reply.metadata.reply_to_message_id: reply for reply in replies}
            replies.clear()  # so that a model is freed once it has been added up
            while pending and pending[0] in arrived:
                usable += self._is_usable(arrived.pop(pending.pop(0)), take)
            without_error = sum(not reply.has_error() for reply in arrived.values())
            if usable + without_error >= self._enough:
                usable += self._take_all(arrived, pending, take)
                if usable >= self._enough:
                    break
        usable += self._take_all(arrived, pending, take)
        if self._in_flight is not None:
            pending = self._keep(self._in_flight, pending)
        for message_id in pending:
            if self._time_of is None:
                self._late[message_id] = self._expiry[message_id]
            if usable < self._enough:
                self.traffic.unanswered[self._nodes[message_id]] = NO_REPLY
        return self.traffic

    def _keep(self, in_flight: MessagesInFlight, pending: list[str]) -> list[str]:
        """Note the messages whose replies may still come; return the others of ``pending``."""
        ended = self.traffic.virtual_seconds.get("round", 0.0)
        in_flight.clear()
        if self._time_of is not None:
            for seconds, _, parts, reply in self._on_their_way:
                key = reply.metadata.reply_to_message_id
                node, expiry = self._nodes[key], self._expiry[key]
                in_flight[key] = InFlight(node, expiry, reply, seconds - ended, parts)
        else:
            for key in pending:
                if self._expiry[key] > time.time():
                    in_flight[key] = InFlight(self._nodes[key], self._expiry[key])
        return [key for key in pending if key not in in_flight]

    def _arrivals(self) -> Iterator[list[Message]]:
        """Yield the replies in the order in which they arrive before the round's timeout."""
        if self._time_of is None:
            yield from poll_replies(self._cohort, self._nodes, self._timeout)
            return
        carried = self._in_flight or {}
        timed: list[Arrival] = [
            (sent.seconds, self._order[sent.node], sent.time, sent.reply)
            for sent in carried.values()
            if sent.reply is not None and sent.time is not None
        ]
        new = [key for key in self._nodes if key not in carried]
        for reply in chain.from_iterable(poll_replies(self._cohort, new)):
            message_id = reply.metadata.reply_to_message_id
            node, bytes_down = self._nodes[message_id], self._bytes_down[message_id]
            # Those that still work on earlier messages share the server's rates as well.
            time = self._time_of(node, len(self._nodes), bytes_down, message_bytes(reply))
            if time.arrives_within(inf if self._timeout is None else self._timeout):
                timed.append((time.total, self._order[node], time, reply))
        self._on_their_way = sorted(timed, key=lambda arrival: arrival[:2])
        while self._on_their_way:
            total, _, time, reply = self._on_their_way.pop(0)
            self.traffic.virtual_seconds = {"round": total, **time.parts()}
            yield [reply]
        if len(timed) < len(self._nodes) and self._timeout is not None:
            self.traffic.virtual_seconds |= {"round": self._timeout}

    def _take_all(
        self, arrived: dict[str, Message], pending: list[str], take: Callable[[Message], bool]
    ) -> int:
        """Take the replies that have come, in the order of ``pending``; return how many are usable.

        They are removed from ``arrived`` and ``pending``.
        """
        usable = 0
        for message_id in [number for number in pending if number in arrived]:
            pending.remove(message_id)
            usable += self._is_usable(arrived.pop(message_id), take)
        return usable

    def _is_usable(self, reply: Message, take: Callable[[Message], bool]) -> bool:
        """Take a reply, unless it is Flower's, about a node that cannot be reached."""
        node, traffic = self._nodes[reply.metadata.reply_to_message_id], self.traffic
        if reply.metadata.src_node_id == node:
            size = message_bytes(reply)
            traffic.bytes_up += size
            traffic.largest_up = max(traffic.largest_up, size)
            return take(reply)
        if reply.has_error():
            traffic.unanswered[node] = self._why_unanswered(reply)
        else:
            traffic.unanswered[node] = f"node {reply.metadata.src_node_id} replied instead"
        return False

    def _why_unanswered(self, reply: Message) -> str:
        """Return what an error of Flower's own, in place of a node's reply, is about.

        Flower has one text for a message that has expired, a reply that the SuperLink's gate has
        deleted, and a node that was unregistered; it speaks of a removed SuperNode.
        """
        if self._expiry[reply.metadata.reply_to_message_id] < time.time():
            return NO_REPLY
        return GONE if reply.error.code == MESSAGE_UNAVAILABLE else error_reason(reply.error)
