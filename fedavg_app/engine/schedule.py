"""Who handles how many of a round's messages: pure arithmetic."""

import math
from collections.abc import Sequence

# A worker's share that takes no longer than this goes to it in one call; longer ones in parts, of
# which none is meant to be shorter.
CALL_SECONDS = 0.05
# A state that moves from worker to worker costs about this much; it moves where that gains more.
MOVE_SECONDS = 0.02


def shares(free: int, owned: Sequence[int]) -> list[int]:
    """Return how many of ``free`` messages each worker gets, always the least loaded the next.

    Args:
        free: Messages that anyone may handle.
        owned: How many messages each worker has that only it can handle.
    """
    loads = list(owned)
    for _ in range(free if loads else 0):
        loads[loads.index(min(loads))] += 1
    return [load - own for load, own in zip(loads, owned, strict=True)]


def call_size(share: int, seconds: float) -> int:
    """Return how many messages of its share a worker is handed at once.

    All where they are short. Otherwise half of them, so that a worker that turns out to be slow
    leaves the rest to others (guided self-scheduling, Polychronopoulos and Kuck 1987).

    Args:
        share: How many of the messages not handed out yet are the worker's share.
        seconds: What one message takes.
    """
    if share * seconds <= CALL_SECONDS:
        return share
    return min(share, max(math.ceil(share / 2), math.ceil(CALL_SECONDS / seconds)))


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
