"""Successive halving: by hand, on made-up methods, and on the recorded runs of the papers."""

import json
import math
from collections import defaultdict
from dataclasses import replace
from fractions import Fraction
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from fedavg_app.budget import Budget
from fedavg_app.results.history import RoundMetrics
from fedavg_app.sweep.halving import SHARES, Limits, Reached, successive_halving
from tasks.objective import Objective
from tests.support.documents import ROOT
from tests.support.training_runs import history

LOSS = Objective("loss", higher_is_better=False)


def choose(table, objective=None, rounds=lambda name, share: 99, initial=None):
    """Return what is chosen from values by candidate, one for each share."""
    asked = []

    def run(left, share):
        asked.append("".join(left))
        number = SHARES.index(share)
        return [Reached(table[name][number], rounds(name, share), initial) for name in left]

    judged = successive_halving(list(table), run, objective or Objective())
    return [(each.candidate, each.share, each.reached.value) for each in judged], asked


def test_best_third_and_untested_candidates_are_kept():
    table = {
        "a": (0.5, 0.6, 0.7), "b": (0.9, 0.5, 0.9), "c": (0.4, 0.9, 0.9), "d": (None, 0.8, 0.85),
        "e": (0.6, 0.7, 0.8), "f": (None, None, 0.1), "g": (0.1, 0.9, 0.9),
    }  # fmt: skip
    ranking, asked = choose(table)
    assert asked == ["abcdefg", "bedf", "df"]
    assert [name for name, _, _ in ranking] == list("dfebacg")
    assert ranking[0] == ("d", 1, 0.85)
    assert ranking[2:4] == [("e", Fraction(1, 3), 0.7), ("b", Fraction(1, 3), 0.5)]
    assert [share for _, share, _ in ranking[4:]] == [Fraction(1, 9)] * 3


def test_smallest_loss_is_best_and_the_first_wins_ties():
    table = {"a": (2, 2, math.inf), "b": (1, 1, 1), "c": (1, 1, 1), "d": (9, 9, 9)}
    ranking, asked = choose(table, LOSS)
    assert asked == ["abcd", "bc", "b"]
    assert [name for name, _, _ in ranking] == list("bcad")


def test_nothing_is_dropped_in_its_first_ten_rounds():
    table = {"a": (0.9, 0.9, 0.9), "b": (0.8, 0.8, 0.8), "c": (0.1, 0.1, 1.0), "d": (0.2, 0.2, 0.2)}
    ends = {"a": 99, "b": 99, "c": 27, "d": 99}
    ranking, asked = choose(table, rounds=lambda name, share: share * ends[name])
    assert asked == ["abcd", "ac", "ac"]  # c has 3, 9 and 27 rounds
    assert ranking[0] == ("c", 1, 1.0)


def test_candidates_close_to_the_best_are_kept():
    table = {"a": (0.9, 0.9, 0.9), "b": (0.861, 0.9, 0.9), "c": (0.859, 0.9, 0.9)}
    assert choose(table)[1] == ["abc", "a", "a"]
    assert choose(table, initial=0.1)[1] == ["abc", "ab", "ab"]  # 5 % of 0.8 are 0.04
    losses = {"a": (1.0, 1, 1), "b": (1.09, 1, 1), "c": (1.11, 1, 1)}
    assert choose(losses, LOSS, initial=3.0)[1] == ["abc", "ab", "ab"]


@given(st.lists(st.tuples(*[st.none() | st.floats(0, 1)] * 3), min_size=1, max_size=30))
def test_every_candidate_is_ranked_once_and_the_choice_was_given_the_whole(rows):
    table = {chr(97 + number): row for number, row in enumerate(rows)}
    ranking, asked = choose(table)
    assert sorted(name for name, _, _ in ranking) == sorted(table)
    assert ranking[0][1] == 1
    known = [table[name][2] for name in asked[-1] if table[name][2] is not None]
    assert ranking[0][2] == max(known, default=None)
    always_best = [name for name in table if table[name] == (1, 1, 1)]
    assert not always_best or ranking[0][2] == 1


def test_limits_count_the_rounds_that_are_within_both_and_not_round_0():
    rounds = history([0.9, 0.1, 0.3, 0.2, None, 0.8])  # 0.5 MB up and 1 MB down in each
    for amount, number, expected in (
        (0.4, 9, Reached(None, 0, 0.9)), (0.5, 9, Reached(0.1, 1, 0.9)),
        (2.4, 9, Reached(0.3, 4, 0.9)), (2.5, 9, Reached(0.8, 5, 0.9)),
        (99, 4, Reached(0.3, 4, 0.9)), (99, 1, Reached(0.1, 1, 0.9)),
    ):  # fmt: skip
        limits = Limits(Budget(amount, "MB", "up"), number, 10)
        assert limits.reached(rounds, Objective()) == expected
    third = Limits(Budget(10, "MB", "up"), 20, 10).share(Fraction(1, 3))
    assert third == Limits(Budget(3.333, "MB", "up"), 6, 10)
    assert third.share(Fraction(1, 9)).rounds == 1  # at the least


# A setting of the recorded runs: their methods differ in the other keys, and are the candidates.
SETTING = ("task", "partition", "partition-args", "num-clients", "fraction-train", "batch-size",
           "momentum", "seed")  # fmt: skip
METHOD = ("strategy", "strategy-args", "local-steps", "local-epochs", "learning-rate")


def recorded():
    """Return the history of every recorded run by method, by setting; those with five or more."""
    found = defaultdict(dict)
    for path in sorted((ROOT / "results" / "records").glob("*/*.json")):
        record = json.loads(path.read_text())
        config, rows = record["config"], record["history"]
        if "strategy" not in config or not rows.get("bytes_down") or config.get("links"):
            continue
        if record["summary"].get("objective", "max accuracy") != "max accuracy":
            continue
        accuracies = rows.get("value") or rows["accuracy"]  # as older records call it
        setting = tuple(str(config.get(key, "")) for key in SETTING)
        rounds = [
            RoundMetrics(number, accuracy=accuracy, total={"bytes_up": up, "bytes_down": down})
            for number, accuracy, up, down in zip(
                rows["round"], accuracies, rows["bytes_up"], rows["bytes_down"], strict=True
            )
        ]
        # Beyond the target at which it stopped, nothing is known of a run.
        stopped = record["summary"]["rounds-to-target"] is not None
        method = tuple(config.get(key, "") for key in METHOD)
        if len(rounds) > len(found[setting].get(method, ([], False))[0]):
            found[setting][method] = rounds, stopped
    return {setting: runs for setting, runs in found.items() if len(runs) >= 5}


def cases():
    """Yield (limits, histories by method, accuracy that is known of all) for every setting.

    The budgets are some rounds of the most expensive method, and the total of one of the methods;
    each method's record is long enough to tell how far it gets.
    """
    for known in recorded().values():
        for direction in ("up", "both"):
            spent = sorted(mega(rounds[-1], direction) for rounds, _ in known.values())
            round_cost = max(
                mega(metrics[-1], direction) / metrics[-1].round for metrics, _ in known.values()
            )
            amounts = {spent[0], spent[len(spent) // 2], *(n * round_cost for n in (3, 10, 30))}
            for rounds, amount in product((50, 200, 800, 4000), sorted(amounts)):
                limits = Limits(Budget(amount, "MB", direction), rounds, 100)
                runs, top = dict[tuple[str, ...], list[RoundMetrics]](), 1.0
                for method, (own, stopped) in known.items():
                    short = own[-1].round < rounds and mega(own[-1], direction) < amount
                    if stopped or not short:
                        runs[method] = own
                    if stopped and short:  # at its target
                        top = min(top, max(metrics.accuracy for metrics in own))
                if sum(run[1].round <= rounds for run in runs.values()) >= 5:
                    yield limits, runs, top


def mega(metrics, direction):
    names = {"up": ("bytes_up",), "both": ("bytes_up", "bytes_down")}[direction]
    return sum(metrics.total[name] for name in names) / 1e6


def test_choice_among_recorded_runs_is_close_to_the_best():
    """By the error rate, as docs/plans.md says."""
    ratios = []
    for limits, runs, top in cases():

        def run(left, share, limits=limits, runs=runs, top=top):
            found = (limits.share(share).reached(runs[name], Objective()) for name in left)
            return [
                replace(reached, value=reached.value and min(reached.value, top))
                for reached in found
            ]

        values = [
            reached.value for reached in run(list(runs), Fraction(1)) if reached.value is not None
        ]
        if len(values) >= 5:  # some records have few tests
            chosen = successive_halving(list(runs), run, Objective())[0].reached.value
            ratios.append((1 - chosen) / (1 - max(values)))
    assert len(ratios) > 400
    assert sum(ratio > 1.05 for ratio in ratios) <= 0.01 * len(ratios)
    assert max(ratios) <= 1.12
