"""Rounds to a target accuracy, as the papers count them."""

from collections.abc import Sequence

from fedavg_app.results.metrics import RoundMetrics


def accuracy_curve(
    history: Sequence[RoundMetrics], *, on_clients: bool = False
) -> list[tuple[int, float]]:
    """Return (round, `RoundMetrics.score`) for every round that was tested."""
    scores = ((metrics.round, metrics.score(on_clients=on_clients)) for metrics in history)
    return [(number, score) for number, score in scores if score is not None]


def best_point(curve: Sequence[tuple[int, float]]) -> tuple[int, float] | None:
    """Return the (round, accuracy) of the best accuracy, the first of equal ones."""
    return max(curve, key=lambda point: point[1], default=None)


def rounds_to_target(curve: Sequence[tuple[int, float]], target: float) -> float | None:
    """Return the number of rounds to a target accuracy as the FedAvg paper counts them.

    The curve is made monotone ("taking the best value of test-set accuracy achieved over all prior
    rounds"), and the crossing is found "using linear interpolation between the discrete points"
    (arXiv 1602.05629v4, section 3).

    Args:
        curve: (round, accuracy) in the order of rounds.
        target: The accuracy to reach.

    Returns:
        The crossing, in rounds; None where the curve never reaches the target.
    """
    previous: tuple[int, float] | None = None
    for server_round, accuracy in curve:
        if accuracy >= target:
            if previous is None:
                return float(server_round)
            before, best = previous
            crossing = before + (server_round - before) * (target - best) / (accuracy - best)
            return min(crossing, float(server_round))  # rounding may lead beyond it
        best = accuracy if previous is None else max(previous[1], accuracy)
        previous = (server_round, best)
    return None
