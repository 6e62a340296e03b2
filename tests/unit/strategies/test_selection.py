"""Selections against their papers' rules, computed by hand."""

import math
from collections import Counter

import numpy as np
import pytest

from strategies.rounds.model import Layout, Model
from strategies.rounds.values import Round, RunSettings
from strategies.selection import Candidate, make_selection
from strategies.selection.oort import Oort

MODEL = Model(Layout.of({"w": np.zeros(1, np.float32)}), np.zeros(1, np.float32), {}, ("w",))


def clients(sizes, **known):
    """Return candidates of these sizes; other attributes are lists by name."""
    values = [dict(zip(known, row, strict=True)) for row in zip(*known.values(), strict=True)]
    return [
        Candidate(100 + number, number, size, **(values[number] if values else {}))
        for number, size in enumerate(sizes)
    ]


def in_round(number, seed=3):
    return Round(number, MODEL, {}, RunSettings(seed=seed))


def drawn(text, available, count, rounds):
    selection = make_selection(text)
    return [list(selection.select(in_round(t), available, count)) for t in range(1, rounds + 1)]


def test_uniform_needs_no_function():
    assert make_selection("uniform") is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("bysize", "known selections: uniform, by-size, oort"),
        ("power-of-choice candidates = ", "write arguments in TOML"),
        ("power-of-choice number = 3", "PowerOfChoice does not take number; it takes: candidates"),
        ("power-of-choice candidates = -1", "candidates = -1: should be greater than or equal"),
        ("json:dumps", "'json:dumps' is not a subclass of Selection"),
    ],
)
def test_selection_that_cannot_be_made_is_one_line(text, reason):
    with pytest.raises(ValueError, match=reason):
        make_selection(text)


def test_by_size_draws_in_proportion_to_examples_with_replacement():
    """The numbers of draws are within 5 standard deviations of n p."""
    sizes = [10, 20, 70, 0]  # the last one's is not known: the mean, 33.3
    counts, draws = Counter(), 4 * 2000
    for places in drawn("by-size", clients(sizes), 4, 2000):
        assert len(places) == 4
        counts.update(places)
    shares = np.array([10, 20, 70, 100 / 3]) / (100 + 100 / 3)
    for place, p in enumerate(shares):
        assert abs(counts[place] - draws * p) < 5 * math.sqrt(draws * p * (1 - p))


def test_power_of_choice_asks_candidates_by_size_and_takes_the_largest_losses():
    selection = make_selection("power-of-choice candidates = 3")
    available = clients([1, 1, 1, 1, 10**9])
    asked = [selection.candidates(in_round(t), available, 2) for t in range(1, 50)]
    assert all(len(set(places)) == 3 and 4 in places for places in asked)
    assert len({tuple(places) for places in asked}) == 6  # any two of the other four
    losses = clients([1, 1, 1], metrics=[{"loss": 0.5}, {"loss": 2.0}, {"loss": 1.0}])
    assert selection.select(in_round(1), losses, 2) == [1, 2]


def test_power_of_choice_asks_twice_as_many_as_train_by_default():
    selection = make_selection("power-of-choice")
    assert len(selection.candidates(in_round(1), clients([1] * 10), 3)) == 6
    assert len(selection.candidates(in_round(1), clients([1] * 4), 3)) == 4


def test_round_robin_takes_each_client_before_any_again():
    assert drawn("round-robin", clients([1] * 5), 2, 5) == [[0, 1], [2, 3], [4, 0], [1, 2], [3, 4]]


def test_oorts_utility_is_examples_times_loss_plus_a_term_for_old_reports():
    """U = n_k loss, at most its 95th percentile, plus sqrt(0.1 log R / L)."""
    losses = [{"train-loss": 2.0}, {"train-loss": 1.0}, {"train-loss": 9.0}]
    known = clients([10, 30, 20], metrics=losses, last_round=[8, 2, 4])
    utility = Oort().utilities(in_round(9), known)
    clipped = 30 + 0.9 * (180 - 30)  # the 95th percentile of 20, 30, 180, between the last two
    bonus = [math.sqrt(0.1 * math.log(9) / last) for last in (8, 2, 4)]
    np.testing.assert_allclose(utility, np.array([20, 30, clipped]) + bonus)


def test_oort_explores_new_clients_and_prefers_high_utility():
    """In round 1 all are new; later a share of 0.2 is, and the rest have the largest utility."""
    assert len(set(drawn("oort", clients([1] * 10), 4, 1)[0])) == 4
    metrics = [{"train-loss": loss} for loss in [9, 9, 9, 9, 9, 1, 1, 1, 1, 1] + [0] * 10]
    rounds = [499] * 10 + [0] * 10
    available = clients([1] * 20, metrics=metrics, last_round=rounds)
    for seed in range(20):
        places = Oort().select(in_round(500, seed), available, 5)
        assert len(set(places)) == 5
        assert sum(place >= 10 for place in places) == 1
        assert sum(place < 5 for place in places) == 4
