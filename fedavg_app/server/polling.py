"""Sending messages and waiting for their replies."""

import time
from collections.abc import Iterable, Iterator, Sequence

from flwr.app import Message
from flwr.serverapp import Grid

# Pauses between two polls for replies: short at first, for clients that answer in milliseconds,
# growing while nothing comes, so that a slow network is not polled all the time.
FIRST_PAUSE, MAX_PAUSE, PAUSE_GROWTH = 0.002, 0.5, 1.5


def wait(grid: Grid, seconds: float) -> None:
    """Wait ``seconds``, or until there are new replies if the grid has its own ``wait``."""
    getattr(grid, "wait", time.sleep)(seconds)


def send(grid: Grid, messages: Sequence[Message]) -> list[str | None]:
    """Send the messages; return the id of each, None for messages that could not be sent.

    Flower's grid over the network returns no ids at all if the messages are too large.
    """
    ids = list(grid.push_messages(messages))
    return [message_id or None for message_id in ids] if ids else [None] * len(messages)


def poll_replies(
    grid: Grid, message_ids: Iterable[str | None], timeout: float | None = None
) -> Iterator[list[Message]]:
    """Yield the replies to messages that were sent; replies that arrive together are one list.

    It ends when all have arrived or ``timeout`` seconds are over; replies that have arrived by then
    are still fetched. A timeout of 0 fetches what is there. An id of None is not waited for.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    missing = [message_id for message_id in message_ids if message_id]
    pause = FIRST_PAUSE
    while missing:
        replies = list(grid.pull_messages(missing))
        if replies:
            answered = {reply.metadata.reply_to_message_id for reply in replies}
            missing = [message_id for message_id in missing if message_id not in answered]
            pause = FIRST_PAUSE
            yield replies
        elif deadline is not None and time.monotonic() >= deadline:
            return
        else:
            pause = min(pause * PAUSE_GROWTH, MAX_PAUSE)
        if missing:
            left = pause if deadline is None else max(deadline - time.monotonic(), 0.0)
            wait(grid, min(pause, left))
