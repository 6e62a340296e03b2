"""Messages out, replies back."""

import time
from collections.abc import Iterable

from flwr.app import Message
from flwr.serverapp import Grid

# Pauses between two looks for replies: short at first, for clients that answer in milliseconds,
# growing while nothing comes, so that a slow network is not asked all the time.
FIRST_PAUSE, LONGEST_PAUSE, GROWTH = 0.002, 0.5, 1.5


def exchange(
    grid: Grid, messages: Iterable[Message], timeout: float | None = None
) -> list[Message]:
    """Send the messages; return the replies once all have come or ``timeout`` seconds are over.

    Error replies count as replies. The order is that of arrival.
    """
    waiting = set(grid.push_messages(messages))
    deadline = None if timeout is None else time.monotonic() + timeout
    replies: list[Message] = []
    pause = FIRST_PAUSE
    while waiting:
        arrived = list(grid.pull_messages(waiting))
        replies += arrived
        waiting -= {reply.metadata.reply_to_message_id for reply in arrived}
        if not waiting or (deadline is not None and time.monotonic() >= deadline):
            break
        pause = FIRST_PAUSE if arrived else min(pause * GROWTH, LONGEST_PAUSE)
        left = pause if deadline is None else max(deadline - time.monotonic(), 0.0)
        time.sleep(min(pause, left))
    return replies
