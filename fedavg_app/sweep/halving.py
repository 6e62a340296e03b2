"""Successive halving: all candidates get a part of a budget, and the best of them the next.

The rule is that of Jamieson and Talwalkar (arXiv 1502.07943): after a quarter and after a half of
the budget the best third goes on. A candidate that has had few rounds by then goes on, too: error
feedback and clients with few classes start slowly, and few rounds take little time. The numbers are
chosen on the recorded runs of the papers (docs/choosing-a-compressor.md).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Generic, TypeVar

from fedavg_app.budget import Budget
from fedavg_app.results.metrics import RoundMetrics, objective_curve
from fedavg_app.results.spending import spent
from tasks.objective import Objective

SHARES = (Fraction(1, 4), Fraction(1, 2), Fraction(1))
# The part of the candidates that goes on is one in so many.
ETA = 3
# No candidate is dropped before it has had so many rounds.
MIN_ROUNDS = 10

Candidate = TypeVar("Candidate")


@dataclass(frozen=True)
class Reached:
    """What a run has reached within limits.

    Attributes:
        value: The best objective; None where no round of training was tested.
        rounds: How many rounds of training it had.
    """

    value: float | None
    rounds: int


@dataclass(frozen=True)
class Limits:
    """What a run may spend, and its rounds; a part of both is what a rung gives.

    Attributes:
        budget: The budget.
        rounds: The most rounds.
        num_clients: K.
    """

    budget: Budget
    rounds: int
    num_clients: int

    def share(self, part: Fraction) -> "Limits":
        """Return this part of both; at least one round."""
        rounds = max(math.floor(part * self.rounds), 1)
        return replace(self, budget=self.budget.share(float(part)), rounds=rounds)

    def reached(
        self, history: Sequence[RoundMetrics], objective: Objective, *, on_clients: bool = False
    ) -> Reached:
        """Return what the rounds of a run have reached within them; round 0 does not count."""
        within = [
            one for number, one in enumerate(history)
            if 0 < one.round <= self.rounds
            and spent(self.budget, history[: number + 1], self.num_clients) <= self.budget.amount
        ]  # fmt: skip
        best = objective.best_point(objective_curve(within, objective, on_clients=on_clients))
        return Reached(best and best[1], within[-1].round if within else 0)


@dataclass(frozen=True)
class Judged(Generic[Candidate]):
    """A candidate, the last share of the budget that it was given, and what it reached with it."""

    candidate: Candidate
    share: Fraction
    reached: Reached


def successive_halving(
    candidates: Sequence[Candidate],
    run: Callable[[Sequence[Candidate], Fraction], Sequence[Reached]],
    objective: Objective,
) -> list[Judged[Candidate]]:
    """Return the candidates, the one to take first, and then those that were given most.

    Args:
        candidates: What to choose from; of equal ones the first.
        run: Returns what each of these candidates has reached within this share of the limits.
        objective: What the values are of.
    """
    left, ranking = list(candidates), list[Judged[Candidate]]()
    for share in SHARES:
        found = [
            Judged(one, share, reached)
            for one, reached in zip(left, run(left, share), strict=True)
        ]  # fmt: skip
        last = share == SHARES[-1]
        fewest = 1 if last else MIN_ROUNDS
        known, unknown = list[Judged[Candidate]](), list[Judged[Candidate]]()
        for one in found:
            is_known = one.reached.value is not None and one.reached.rounds >= fewest
            (known if is_known else unknown).append(one)
        known.sort(key=lambda one: one.reached.value or 0.0, reverse=objective.higher_is_better)
        kept = len(known) if last else math.ceil(len(known) / ETA)
        ranking = known[kept:] + ranking
        left = [one.candidate for one in known[:kept] + unknown]
    return known + unknown + ranking
