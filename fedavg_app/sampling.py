"""Who takes part in a round: a pure function of the seed and the round's number."""

from collections.abc import Sequence

from tasks.seeds import stream


def cohort_size(fraction: float, num_clients: int) -> int:
    """Return m = max(round(C * K), 1) (arXiv 1602.05629v4, Algorithm 1); C = 0 means one client.

    Halves round up, so that C = 0.125 of 100 clients are 13 whatever Python's ``round`` does.
    """
    return max(int(fraction * num_clients + 0.5), 1)


def sample(
    seed: int,
    server_round: int,
    purpose: str,
    size: int,
    clients: Sequence[int],
) -> list[int]:
    """Return the sorted numbers of the clients that take part in the round.

    Args:
        seed: The run's seed.
        server_round: The round's number, from 1.
        purpose: "train" or "evaluate": two independent draws.
        size: How many are wanted, `cohort_size` or more; all where there are fewer.
        clients: The numbers of those that are there, sorted.
    """
    size = min(size, len(clients))
    drawn = stream(seed, purpose, server_round).choice(len(clients), size=size, replace=False)
    return sorted(clients[int(place)] for place in drawn)
