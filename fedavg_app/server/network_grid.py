"""Flower's grid over the network: contents as one object, each reply on a separate thread.

`HttpGrid.pull_messages` fetches all replies of a call at once, waits minutes for a reply whose
upload has stopped, and raises if any reply is malformed. Here each message is asked for separately:
an error in its reply becomes the reason for that reply's rejection.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from flwr.app import ArrayRecord, Message, RecordDict
from flwr.serverapp import Grid

from fedavg_app.errors import ConfigError
from fedavg_app.flower_internals import MESSAGE_UNAVAILABLE, BaseGrid, error_reply
from fedavg_app.packed_content import pack_all, packed_size, unpack
from fedavg_app.server.polling import MAX_PAUSE, wait
from strategies.rounds.flower_arrays import records_of

logger = logging.getLogger("fedavg_app.network_grid")
T = TypeVar("T")

# Seconds until the next look at the SuperLink after one without a result. A look is a request for
# each message that has no reply, and a SuperLink spends some 20 ms of CPU time on a request.
MIN_PAUSE = 0.2
# Looks at a time, or one at a time for large messages: Flower fetches a reply in three times its
# memory. A look of more than `SLOW_LOOK` seconds, as at a stalled upload, does not count.
LOOKS, SLOW_LOOK = 4, 10.0
# The records of a reply may take twice what those of the largest message take, and this beside.
SPARE_BYTES = 2**20
# Seconds without a reply after which the nodes that are waited for are logged.
SILENCE = 10.0


def is_network_grid(grid: Grid) -> bool:
    """Return whether this is Flower's grid over the network, for which it has no public name."""
    return isinstance(grid, NetworkGrid) or type(grid).__name__ == "HttpGrid"


def count_nodes(grid: Grid, quiet_seconds: float) -> int:
    """Return how many nodes are connected, once no other has come for ``quiet_seconds``.

    A simulation's nodes are all there from its start.

    Raises:
        ConfigError: There is none.
    """
    nodes, last_change = len(list(grid.get_node_ids())), time.monotonic()
    while is_network_grid(grid) and time.monotonic() < last_change + quiet_seconds:
        wait(grid, min(MAX_PAUSE, quiet_seconds))
        found = len(list(grid.get_node_ids()))
        if found != nodes:
            nodes, last_change = found, time.monotonic()
    if not nodes:
        raise ConfigError("num-clients", 0, "no SuperNode is connected; start some first")
    return nodes


class NetworkGrid(BaseGrid):
    """Flower's grid, whose replies are fetched one by one, each on a thread."""

    def __init__(self, grid: Grid) -> None:
        self._grid, self._looks_at_a_time = grid, LOOKS
        self._sent: dict[str, Message] = {}  # the least recently polled comes first
        self._looks: dict[str, float] = {}  # in progress, since when
        self._arrived: dict[str, Message] = {}
        self._wanted: set[str] = set()  # by the last call
        self._ended: BaseException | None = None
        self._most_read = SPARE_BYTES  # that the records of a reply may take
        self._news = threading.Condition()
        self._nodes: list[int] = []
        self._last_arrival = time.monotonic()

    def get_node_ids(self) -> list[int]:
        """Return the connected nodes' ids; those of the last look while the SuperLink fails."""
        self._nodes = _unless_failing(lambda: list(self._grid.get_node_ids()), self._nodes)
        return self._nodes

    def push_messages(self, messages: Iterable[Message]) -> Sequence[str]:
        """Send messages through Flower's grid; the id of an unsent message is empty."""
        given = list(messages)
        contents = pack_all(message.content for message in given)
        for content in {id(content): content for content in contents}.values():
            self._most_read = max(self._most_read, 2 * packed_size(content) + SPARE_BYTES)
        # Packed contents have no arrays.
        is_large = any(records_of(content, ArrayRecord) for content in contents)
        self._looks_at_a_time = 1 if is_large else LOOKS
        pushed = list(map(_with_content, given, contents))
        ids = _unless_failing(lambda: list(self._grid.push_messages(pushed)), [""] * len(pushed))
        with self._news:
            for key in [key for key, message in self._sent.items() if _has_expired(message)]:
                del self._sent[key]
            self._sent |= {key: message for key, message in zip(ids, pushed, strict=False) if key}
        self._last_arrival = time.monotonic()
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        """Return the replies that have arrived, or what stands for those that were rejected."""
        wanted, now = set(message_ids), time.monotonic()
        with self._news:
            self._wanted = wanted
            if self._ended is not None:
                raise self._ended
            found = [self._arrived.pop(key) for key in wanted & self._arrived.keys()]
            looking = sum(now - since < SLOW_LOOK for since in self._looks.values())
            slots = self._looks_at_a_time - looking
            silent = {key: message for key, message in self._sent.items() if key in wanted}
            for key in [key for key in silent if key not in self._looks][: max(slots, 0)]:
                self._looks[key] = now
                message = self._sent[key] = self._sent.pop(key)
                threading.Thread(target=self._look, args=(key, message), daemon=True).start()
        if found:
            self._last_arrival = now
        elif now - self._last_arrival > SILENCE and silent:
            nodes = sorted({message.metadata.dst_node_id for message in silent.values()})
            logger.info("waiting for %s", ", ".join(f"node {node}" for node in nodes))
            self._last_arrival = float("inf")  # once
        return found

    def wait(self, seconds: float) -> None:
        """Wait for a reply that was asked for, or until the SuperLink may be asked again."""
        with self._news:
            self._news.wait_for(
                lambda: self._wanted & self._arrived.keys() or self._ended, max(seconds, MIN_PAUSE)
            )

    def _look(self, message_id: str, message: Message) -> None:
        """Fetch the reply to a message if it is there."""
        reply: Message | None = None
        ended: BaseException | None = None
        nothing: list[Message] = []
        try:
            replies = _unless_failing(lambda: list(self._grid.pull_messages([message_id])), nothing)
            if replies:
                reply = replies[0]
                unpack(reply, self._most_read)
                answered = reply.metadata.reply_to_message_id
                if answered != message_id:
                    raise ValueError(f"it says that it answers message {answered[:80]}")
        except Exception as error:  # whatever a device's bytes lead to inside Flower
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            reply = error_reply(message, f"refused: {reason}", MESSAGE_UNAVAILABLE)
        except BaseException as error:  # Flower's, for a run that was stopped
            ended = error
        with self._news:
            del self._looks[message_id]
            self._ended = self._ended or ended
            if reply is not None:
                self._arrived[message_id] = reply
                self._sent.pop(message_id, None)
            self._news.notify()


def _with_content(message: Message, content: RecordDict) -> Message:
    metadata = message.metadata
    return Message(
        content,
        dst_node_id=metadata.dst_node_id,
        message_type=metadata.message_type,
        ttl=metadata.ttl,
        group_id=metadata.group_id,
    )


def _has_expired(message: Message) -> bool:
    return message.metadata.created_at + message.metadata.ttl < time.time()


def _unless_failing(request: Callable[[], T], default: T) -> T:
    """Return a request's result, or the default where the SuperLink answers with status 5xx.

    That is what it does while its database is locked.
    """
    try:
        return request()
    except Exception as error:
        status = getattr(getattr(error, "response", None), "status_code", 0)
        if status < 500:
            raise
        logger.warning("the SuperLink fails to answer (HTTP %d)", status)
        return default
