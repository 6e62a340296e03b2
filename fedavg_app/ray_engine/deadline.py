"""Work that is interrupted at a deadline."""

import math
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

LATE = "still at work at the round's deadline"
NOT_BEGUN = "not begun before the round's deadline"


class DeadlineError(TimeoutError):
    """A client was not done when the round's deadline came."""


@contextmanager
def interrupted_at(deadline: float) -> Iterator[None]:
    """Raise `DeadlineError` in what runs inside once the deadline has come.

    It interrupts Python code, waiting included, but no call of a library that hangs.

    Args:
        deadline: On the monotonic clock, not in the past; infinity for none.
    """
    if deadline == math.inf:
        yield
        return

    def expire(*_: object) -> None:
        raise DeadlineError(LATE)

    before = signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, max(deadline - time.monotonic(), 1e-6))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def check_deadline(deadline: float, message: str = LATE) -> None:
    """Raise `DeadlineError` with that message if the deadline has come."""
    if time.monotonic() >= deadline:
        raise DeadlineError(message)
