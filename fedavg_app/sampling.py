"""Who takes part in a round: a pure function of the seed and the round's number."""

from tasks.seeds import stream


def cohort_size(fraction: float, num_clients: int) -> int:
    """Return m = max(round(C * K), 1) (arXiv 1602.05629v4, Algorithm 1); C = 0 means one client.

    Halves round up, so that C = 0.125 of 100 clients are 13 whatever Python's ``round`` does.
    """
    return max(int(fraction * num_clients + 0.5), 1)


def sample(
    seed: int, server_round: int, purpose: str, fraction: float, num_clients: int
) -> list[int]:
    """Return the sorted numbers of the clients that take part in the round.

    Args:
        seed: The run's seed.
        server_round: The round's number, from 1.
        purpose: "train" or "evaluate": two independent draws.
        fraction: C, in [0, 1].
        num_clients: K.
    """
    size = cohort_size(fraction, num_clients)
    drawn = stream(seed, purpose, server_round).choice(num_clients, size=size, replace=False)
    return sorted(int(client) for client in drawn)
