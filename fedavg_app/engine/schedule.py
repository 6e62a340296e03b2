"""Who handles how many of a round's messages: pure arithmetic."""

import math
from collections.abc import Sequence

WINDOW_SECONDS = 0.05
# A state that moves from worker to worker costs about this much; it moves where that gains more.
MOVE_SECONDS = 0.002


def shares(free: int, owned: Sequence[int]) -> list[int]:
    """Return how many of ``free`` messages each worker gets, always the least loaded the next.

    Args:
        free: Messages that anyone may handle.
        owned: How many messages each worker has that only it can handle.
    """
    order = sorted(range(len(owned)), key=lambda worker: owned[worker])
    given = [0] * len(owned)
    for count in range(len(order), 0, -1):
        # Bring the ``count`` least loaded to one level, if none of them is above it already.
        level, left = divmod(free + sum(owned[worker] for worker in order[:count]), count)
        if level >= owned[order[count - 1]]:
            for place, worker in enumerate(order[:count]):
                given[worker] = level - owned[worker] + (place < left)
            break
    return given


def window(seconds: float) -> int:
    """Return how many messages a worker has at a time: work for `WINDOW_SECONDS`, at least two.

    It begins one while the reply to the one before travels. What it does not have yet, another may
    take: a worker that turns out to be slow holds up one message of those that take long.

    Args:
        seconds: What one message takes.
    """
    return max(2, math.ceil(WINDOW_SECONDS / seconds)) if seconds else 2


def moves(owned: Sequence[int], free: int, seconds: float) -> list[tuple[int, int]]:
    """Return (from, to) for every message that is better handled by another worker than its owner.

    Args:
        owned: How many messages each worker has for clients whose state it has.
        free: Messages that anyone may handle, which even out the loads first.
        seconds: What one message takes; infinity where it is not known, and nothing moves.
    """
    loads = list(owned)
    even = math.ceil((sum(loads) + free) / len(loads))
    found: list[tuple[int, int]] = []
    if math.isinf(seconds) or (max(loads) - even) * seconds <= MOVE_SECONDS:
        return found
    while max(loads) > even:
        source, target = loads.index(max(loads)), loads.index(min(loads))
        loads[source] -= 1
        loads[target] += 1
        found.append((source, target))
    return found
