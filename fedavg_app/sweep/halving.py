"""Successive halving: all candidates get a part of a budget, and the best of them the next.

The rule is that of Jamieson and Talwalkar (arXiv 1502.07943) with eta = 3: after 1/9 and after 1/3
of the budget the best third stays in. So do candidates close to the best, since values between two
rounds differ by as much, and candidates with few rounds so far: error feedback and clients with few
classes start slowly. The numbers were chosen on recorded runs (docs/plans.md).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Generic, TypeVar

from fedavg_app.budget import Budget
from fedavg_app.results.history import RoundMetrics, objective_curve
from fedavg_app.training_plan import affords
from tasks.objective import Objective

ETA = 3
SHARES = (Fraction(1, 9), Fraction(1, 3), Fraction(1))
# A candidate is close to the best if it lacks at most this part of the best's progress from round
# 0.
CLOSE = 0.05
# No candidate is dropped before it has had this many rounds.
MIN_ROUNDS = 10

Candidate = TypeVar("Candidate")


@dataclass(frozen=True)
class Reached:
    """The result of a run within limits.

    Attributes:
        value: The best objective; None if no round of training was tested.
        rounds: How many rounds of training it had.
        initial: The objective of round 0; None if it was not tested.
    """

    value: float | None
    rounds: int
    initial: float | None = None


@dataclass(frozen=True)
class Limits:
    """The most that a run may spend and its most rounds; a rung gives a part of both.

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
            record for number, record in enumerate(history)
            if 0 < record.round <= self.rounds
            and affords(self.budget, history[: number + 1], self.num_clients)
        ]  # fmt: skip
        best = objective.best_point(objective_curve(within, objective, on_clients=on_clients))
        initial = history[0].score(objective, on_clients=on_clients)
        return Reached(best and best[1], within[-1].round if within else 0, initial)


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
    """Return the candidates, the best first, then by how much they were given.

    Args:
        candidates: The candidates; the first wins a tie.
        run: Returns the results of these candidates within this share of the limits.
        objective: The objective of the values.
    """
    left, ranking = list(candidates), list[Judged[Candidate]]()
    for share in SHARES:
        found = [
            Judged(candidate, share, reached)
            for candidate, reached in zip(left, run(left, share), strict=True)
        ]  # fmt: skip
        last = share == SHARES[-1]
        fewest = 1 if last else MIN_ROUNDS
        known, unknown = list[Judged[Candidate]](), list[Judged[Candidate]]()
        for entry in found:
            is_known = entry.reached.value is not None and entry.reached.rounds >= fewest
            (known if is_known else unknown).append(entry)
        known.sort(key=lambda entry: entry.reached.value or 0.0, reverse=objective.higher_is_better)
        kept = len(known) if last else max(math.ceil(len(known) / ETA), _num_close(known))
        ranking = known[kept:] + ranking
        left = [entry.candidate for entry in known[:kept] + unknown]
    return known + unknown + ranking


def _num_close(known: Sequence[Judged[Candidate]]) -> int:
    """Return how many of these, the best first, are close to the best."""
    if not known or known[0].reached.value is None or known[0].reached.initial is None:
        return 0
    best, initial = known[0].reached.value, known[0].reached.initial
    lacking = [
        abs(best - entry.reached.value) for entry in known if entry.reached.value is not None
    ]
    return sum(lack <= CLOSE * abs(best - initial) for lack in lacking)
