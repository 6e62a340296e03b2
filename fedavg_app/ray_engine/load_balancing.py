"""How many of a round's messages each worker handles: pure arithmetic."""

import math
from collections.abc import Sequence

WINDOW_SECONDS = 0.05
# What moving a state between workers costs, in seconds; it is moved where that gains more.
MOVE_SECONDS = 0.002


def share_out(free: int, loads: Sequence[int]) -> list[int]:
    """Return how many of ``free`` messages each worker gets, always the least loaded the next.

    Args:
        free: Messages that any worker may handle.
        loads: How many messages each worker has already.
    """
    order = sorted(range(len(loads)), key=lambda worker: loads[worker])
    given = [0] * len(loads)
    for count in range(len(order), 0, -1):
        # Bring the ``count`` least loaded to one level, if none of them is above it already.
        level, left = divmod(free + sum(loads[worker] for worker in order[:count]), count)
        if level >= loads[order[count - 1]]:
            for place, worker in enumerate(order[:count]):
                given[worker] = level - loads[worker] + (place < left)
            break
    return given


def window_size(seconds: float) -> int:
    """Return how many messages a worker has at a time: `WINDOW_SECONDS` of work, at least two.

    It begins one while the reply to the one before travels. The others may still go to another
    worker: a slow worker delays one message of those that take long.

    Args:
        seconds: What one message takes.
    """
    return max(2, math.ceil(WINDOW_SECONDS / seconds)) if seconds else 2


def moves(loads: Sequence[int], free: int, seconds: float) -> list[tuple[int, int]]:
    """Return (from, to) for every message that another worker should handle than its state's.

    Args:
        loads: How many messages each worker has for clients whose state it keeps.
        free: Messages that any worker may handle, which even out the loads first.
        seconds: What one message takes; infinity where it is not known, and nothing moves.
    """
    levels = list(loads)
    even = math.ceil((sum(levels) + free) / len(levels))
    found: list[tuple[int, int]] = []
    if math.isinf(seconds) or (max(levels) - even) * seconds <= MOVE_SECONDS:
        return found
    while max(levels) > even:
        source, target = levels.index(max(levels)), levels.index(min(levels))
        levels[source] -= 1
        levels[target] += 1
        found.append((source, target))
    return found
