"""The objective of a task: what its best model, targets and comparisons go by."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Self

LOSS = "loss"
ACCURACY = "accuracy"
DIRECTIONS = {"max": True, "min": False}


@dataclass(frozen=True)
class Objective:
    """A metric, or the loss, and its direction.

    Attributes:
        name: The metric's name, or "loss".
        higher_is_better: Whether more of it is better.
    """

    name: str = ACCURACY
    higher_is_better: bool = True

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the objective of a text such as "max f1" or "min loss".

        Raises:
            ValueError: It is not of this form.
        """
        direction, _, name = text.partition(" ")
        if direction not in DIRECTIONS or not name:
            raise ValueError("give 'max' or 'min' and a metric's name, as in: min mae")
        return cls(name, DIRECTIONS[direction])

    def __str__(self) -> str:
        return f"{'max' if self.higher_is_better else 'min'} {self.name}"

    def is_reached(self, value: float | None, target: float | None) -> bool:
        """Return whether a value is at least as good as a target; False if either is missing."""
        if value is None or target is None:
            return False
        return value >= target if self.higher_is_better else value <= target

    def is_better(self, value: float, best: float | None) -> bool:
        """Return whether a value is better than the best so far, if there is one; NaN never is."""
        if best is None or math.isnan(best):
            return not math.isnan(value)
        return value > best if self.higher_is_better else value < best

    def best_point(self, curve: Sequence[tuple[int, float]]) -> tuple[int, float] | None:
        """Return the (round, value) of the best value; the first wins ties, and NaN never."""
        known = [point for point in curve if not math.isnan(point[1])]
        best = max if self.higher_is_better else min
        return best(known, key=itemgetter(1), default=None)

    def rounds_to_target(self, curve: Sequence[tuple[int, float]], target: float) -> float | None:
        """Return the number of rounds to a target as the FedAvg paper counts them.

        The curve is made monotone ("taking the best value of test-set accuracy achieved over all
        prior rounds"), and the crossing is found "using linear interpolation between the discrete
        points" (arXiv 1602.05629v4, section 3).

        Args:
            curve: (round, value) in the order of rounds.
            target: The value to reach.

        Returns:
            The crossing, in rounds; None where the curve never reaches the target.
        """
        last, best = 0, math.nan
        for place, (server_round, value) in enumerate(curve):
            if self.is_reached(value, target):
                if place == 0:
                    return float(server_round)
                crossing = last + (server_round - last) * (target - best) / (value - best)
                return min(crossing, float(server_round))  # rounding may lead beyond it
            last, best = server_round, value if self.is_better(value, best) else best
        return None

    def shown(self, value: float) -> str:
        """Return a value as text."""
        return show_metric(self.name, value)


def show_metric(name: str, value: float) -> str:
    """Return a metric's value as text: shares with four decimals, others with four digits."""
    return f"{value:.4f}" if name in (ACCURACY, LOSS) or 1e-3 <= abs(value) < 10 else f"{value:.4g}"
