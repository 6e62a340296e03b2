"""Messages out, replies back."""

import time
from collections.abc import Iterable, Iterator
from typing import Protocol, runtime_checkable

from flwr.app import Message
from flwr.serverapp import Grid

# Pauses between two looks for replies: short at first, for clients that answer in milliseconds,
# growing while nothing comes, so that a slow network is not asked all the time.
FIRST_PAUSE, LONGEST_PAUSE, GROWTH = 0.002, 0.5, 1.5


@runtime_checkable
class Waiting(Protocol):
    """A grid that knows when replies come, so that nobody has to look for them again and again."""

    def wait(self, seconds: float) -> None:
        """Return as soon as there are new replies, after ``seconds`` at the latest."""


def exchange(
    grid: Grid, messages: Iterable[Message], timeout: float | None = None
) -> list[Message]:
    """Send the messages; return the replies once all have come or ``timeout`` seconds are over.

    Error replies count as replies. The order is that of arrival.
    """
    return list(stream(grid, messages, timeout))


def stream(
    grid: Grid, messages: Iterable[Message], timeout: float | None = None
) -> Iterator[Message]:
    """Send the messages; yield the replies as they come, as `exchange` returns them."""
    wait = grid.wait if isinstance(grid, Waiting) else time.sleep
    deadline = None if timeout is None else time.monotonic() + timeout
    waiting = set(grid.push_messages(messages))
    pause = FIRST_PAUSE
    while waiting:
        arrived = list(grid.pull_messages(waiting))
        waiting -= {reply.metadata.reply_to_message_id for reply in arrived}
        yield from arrived
        if deadline is not None and time.monotonic() >= deadline:
            return
        pause = FIRST_PAUSE if arrived else min(pause * GROWTH, LONGEST_PAUSE)
        if waiting:
            left = pause if deadline is None else max(deadline - time.monotonic(), 0.0)
            wait(min(pause, left))
