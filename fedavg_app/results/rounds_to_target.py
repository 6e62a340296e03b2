"""Rounds to a target, as the papers count them."""

from collections.abc import Sequence

from tasks.objective import Objective


def rounds_to_target(
    curve: Sequence[tuple[int, float]], target: float, objective: Objective | None = None
) -> float | None:
    """Return the number of rounds to a target as the FedAvg paper counts them.

    The curve is made monotone ("taking the best value of test-set accuracy achieved over all prior
    rounds"), and the crossing is found "using linear interpolation between the discrete points"
    (arXiv 1602.05629v4, section 3).

    Args:
        curve: (round, value) in the order of rounds.
        target: The value to reach.
        objective: What the values are of; by default an accuracy.

    Returns:
        The crossing, in rounds; None where the curve never reaches the target.
    """
    objective = objective or Objective()
    previous: tuple[int, float] | None = None
    for server_round, value in curve:
        if objective.is_reached(value, target):
            if previous is None:
                return float(server_round)
            before, best = previous
            crossing = before + (server_round - before) * (target - best) / (value - best)
            return min(crossing, float(server_round))  # rounding may lead beyond it
        if previous is None or objective.is_better(value, previous[1]):
            best = value
        previous = (server_round, best)
    return None
