"""The messages of one round: sent to its cohort, and their replies in the clients' order."""

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from math import ceil, inf
from typing import Any

from flwr.app import Array, Message
from flwr.serverapp import Grid

from fedavg_app.config import RunConfig
from fedavg_app.flower_internals import MESSAGE_UNAVAILABLE
from fedavg_app.links.virtual_clock import ClientTime, VirtualClock
from fedavg_app.server.cohort import CohortGrid, cohort_size, sample_clients
from fedavg_app.server.in_flight import InFlight, MessagesInFlight
from fedavg_app.server.nodes import Nodes
from fedavg_app.server.polling import poll_replies, send
from strategies.reply_errors import error_reason

# Messages expire this long after the round's deadline.
EXPIRY_SECONDS = 1.0
NO_REPLY = "no reply in time"
GONE = "its reply was refused, or its SuperNode unregistered; the SuperLink's log says why"
ROUNDING = 1e-9


# On the virtual clock: when a reply arrives, its client's place, the time of its parts, the reply.
Arrival = tuple[float, int, ClientTime, Message]
# The virtual time of a round's client: node, participants, bytes down, bytes up -> time.
ClientTimeOf = Callable[[int, int, int, int], ClientTime]


class RoundMessenger:
    """Draws the cohorts of a run, sends messages to them, and drops late replies.

    Args:
        grid: Carries the messages.
        nodes: The connected nodes.
        config: How many clients take part, and how long they are waited for.
        clock: Counts the time of training; None for the wall clock.
        in_flight: Training messages whose late replies count in later rounds; None where they do
            not. It is kept up to date.
    """

    def __init__(
        self,
        grid: Grid,
        nodes: Nodes,
        config: RunConfig,
        clock: VirtualClock | None = None,
        in_flight: MessagesInFlight | None = None,
    ) -> None:
        self._grid, self._nodes, self._config, self._clock = grid, nodes, config, clock
        self._in_flight = in_flight
        if in_flight:  # of a run before it was resumed, without its replies on the wall clock
            for key in [key for key, sent in in_flight.items() if sent.reply is None]:
                del in_flight[key]
        # The messages whose replies were no longer waited for: by id, when they expire.
        self._late: dict[str, float] = {}

    def cohort(self, server_round: int, purpose: str) -> CohortGrid:
        """Return the grid with the nodes of the clients that take part, in the clients' order.

        For "train" these are a C-fraction of all K clients and the share of `over_selection`, less
        those that still work on a message; fewer where fewer are connected.
        """
        size, working = self._num_wanted(purpose), set[int]()
        if purpose == "train":
            # Less the rounding error of, for example, 50 * 0.14.
            size += ceil(size * self._config.over_selection - ROUNDING)
            working = {sent.node for sent in (self._in_flight or {}).values()}
            size = max(size - len(working), 1)
        nodes, connected = self._nodes, self._nodes.clients
        if working:
            connected = [node for node in connected if nodes.node(node) not in working]
        clients = sample_clients(self._config.seed, server_round, purpose, size, connected)
        return CohortGrid(self._grid, [nodes.node(client) for client in clients])

    def send(
        self, cohort: CohortGrid, messages: Sequence[Message], server_round: int, purpose: str
    ) -> "SentMessages":
        """Send the messages of a round; return what their replies are read from."""
        self._drop_late_replies()
        for message in messages:
            message.metadata.group_id = str(server_round)
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
        ids, enough = send(cohort, messages), self._num_wanted(purpose)
        in_flight = self._in_flight if purpose == "train" else None
        if in_flight:
            asked = {*cohort.get_node_ids(), *(sent.node for sent in in_flight.values())}
            clients = self._nodes.clients_of(asked)
            cohort = CohortGrid(self._grid, sorted(clients, key=clients.__getitem__))
        return SentMessages(cohort, messages, ids, timeout, enough, self._late, time_of, in_flight)

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


class SentMessages:
    """A round's messages on their way.

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
        num_sent: How many messages were sent.
        bytes_down: The bytes of these.
        bytes_up: The bytes of the replies yielded so far.
        largest_down: The bytes of the largest message.
        largest_up: The bytes of the largest of these replies.
        unanswered: The reason, by node, for each message that its node did not answer, except
            messages whose reply was no longer needed.
        virtual_seconds: Of the round ("round"), and what the last reply that counted spent on
            "download", "computing" and "upload"; empty without a virtual clock.
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
        self._in_flight = in_flight
        self._on_their_way: list[Arrival] = []
        self._timeout, self._enough, self._late, self._time_of = timeout, enough, late, time_of
        self._cohort = cohort
        self._order = {node: number for number, node in enumerate(cohort.get_node_ids())}
        self._rejected: set[int] = set()
        self.unanswered: dict[int, str] = {}
        self.virtual_seconds: dict[str, float] = {}
        self._nodes: dict[str, int] = {}
        self._bytes_down: dict[str, int] = {}
        self._expiry: dict[str, float] = {}
        self._usable = 0  # replies yielded and not rejected
        self.num_sent = self.bytes_down = self.bytes_up = 0
        self.largest_down = self.largest_up = 0
        for message, message_id in zip(messages, message_ids, strict=True):
            node = message.metadata.dst_node_id
            if message_id is None:
                self.unanswered[node] = "the message could not be sent"
                continue
            self._nodes[message_id] = node
            self._expiry[message_id] = message.metadata.created_at + message.metadata.ttl
            self.num_sent += 1
            self._bytes_down[message_id] = size = message_bytes(message)
            self.bytes_down += size
            self.largest_down = max(self.largest_down, size)
        for message_id, sent in (in_flight or {}).items():
            self._nodes[message_id], self._expiry[message_id] = sent.node, sent.expiry

    def replies(self) -> Iterator[Message]:
        """Wait for the replies and yield those that come in time, in the clients' order.

        Replies arrive in any order, and sums of floats depend on it. Each is yielded as soon as
        those before it have come, so that the caller decodes and adds while others still train.
        Where fewer than all are enough, the replies that have come are yielded once they could be
        enough, and others are waited for in place of rejected ones.
        """
        order = self._order
        pending = sorted(self._nodes, key=lambda key: order.get(self._nodes[key], len(order)))
        arrived: dict[str, Message] = {}
        for replies in self._arrivals():
            arrived |= {reply.metadata.reply_to_message_id: reply for reply in replies}
            replies.clear()  # so that a model is freed once it has been added up
            while pending and pending[0] in arrived:
                message_id = pending.pop(0)
                yield from self._accept(arrived.pop(message_id), self._nodes[message_id])
            without_error = sum(not reply.has_error() for reply in arrived.values())
            if self._usable + without_error >= self._enough:
                yield from self._accept_all(arrived, pending)
                if self._usable >= self._enough:
                    break
        yield from self._accept_all(arrived, pending)
        if self._in_flight is not None:
            pending = self._keep(self._in_flight, pending)
        for message_id in pending:
            if self._time_of is None:
                self._late[message_id] = self._expiry[message_id]
            if self._usable < self._enough:
                self.unanswered[self._nodes[message_id]] = NO_REPLY

    def _keep(self, in_flight: MessagesInFlight, pending: list[str]) -> list[str]:
        """Note the messages whose replies may still come; return the others of ``pending``."""
        ended = self.virtual_seconds.get("round", 0.0)
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

    def reject(self, node: int) -> None:
        """Do not count the reply that was just yielded as usable."""
        self._rejected.add(node)

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
            if not time.lost and time.total <= (inf if self._timeout is None else self._timeout):
                timed.append((time.total, self._order[node], time, reply))
        self._on_their_way = sorted(timed, key=lambda arrival: arrival[:2])
        while self._on_their_way:
            total, _, time, reply = self._on_their_way.pop(0)
            self.virtual_seconds = {"round": total, **time.parts()}
            yield [reply]
        if len(timed) < len(self._nodes) and self._timeout is not None:
            self.virtual_seconds |= {"round": self._timeout}

    def _accept_all(self, arrived: dict[str, Message], pending: list[str]) -> Iterator[Message]:
        """Yield the replies that have come, in the order of ``pending``; empty ``arrived``."""
        for message_id in [number for number in pending if number in arrived]:
            pending.remove(message_id)
            yield from self._accept(arrived.pop(message_id), self._nodes[message_id])

    def _accept(self, reply: Message, node: int) -> Iterator[Message]:
        """Yield the reply, unless it is Flower's, about a node that cannot be reached."""
        if reply.metadata.src_node_id == node:
            size = message_bytes(reply)
            self.bytes_up += size
            self.largest_up = max(self.largest_up, size)
            yield reply
            self._usable += not reply.has_error() and node not in self._rejected
        elif reply.has_error():
            self.unanswered[node] = self._why_unanswered(reply)
        else:
            self.unanswered[node] = f"node {reply.metadata.src_node_id} replied instead"

    def _why_unanswered(self, reply: Message) -> str:
        """Return what an error of Flower's own, in place of a node's reply, is about.

        Flower has one text for a message that has expired, a reply that the SuperLink's gate has
        deleted, and a node that was unregistered; it speaks of a removed SuperNode.
        """
        if self._expiry[reply.metadata.reply_to_message_id] < time.time():
            return NO_REPLY
        return GONE if reply.error.code == MESSAGE_UNAVAILABLE else error_reason(reply.error)


def message_bytes(message: Message) -> int:
    """Return the bytes of the message's records: their values and their names.

    Arrays count as serialized (with NumPy's 128-byte header), numbers 8 bytes, booleans 1, text and
    bytes their length. What the transport adds around a record is not counted; an error reply
    carries nothing. (Flower's own `count_bytes` raises for an empty text or list, which a client
    may send.)
    """
    if not message.has_content():
        return 0
    total = 0
    for record in message.content.values():
        total += sum(len(_utf8(name)) + _value_bytes(value) for name, value in record.items())
    return total


def _value_bytes(value: Any) -> int:
    if isinstance(value, Array):
        return len(value.data)
    if isinstance(value, list):
        return sum(_value_bytes(item) for item in value)
    if isinstance(value, bool):
        return 1
    if isinstance(value, str):
        return len(_utf8(value))
    return len(value) if isinstance(value, bytes) else 8


def _utf8(text: str) -> bytes:
    """Return the text's bytes; a name from a device may have halves of surrogate pairs."""
    return text.encode(errors="surrogatepass")
