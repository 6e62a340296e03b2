"""The STC paper's split by classes; the other schemes are in test_partitions.py."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fedavg_app.schemes import Classes


def by_hand(n, clients, gamma, alpha):
    """n_i = phi_i n, exactly, the client with the least first; not yet rounded down."""
    gamma, alpha = Fraction(gamma), Fraction(alpha)
    powers = [gamma**i for i in range(clients)]
    return [n * (alpha / clients + (1 - alpha) * p / sum(powers)) for p in reversed(powers)]


@given(
    n=st.integers(1, 5000),
    clients=st.integers(1, 60),
    gamma=st.floats(0.05, 1),
    alpha=st.floats(0, 1),
)
@settings(deadline=None)
def test_sizes_are_the_formulas(n, clients, gamma, alpha):
    sizes = Classes(balancedness=gamma, minimum_share=alpha).sizes(n, clients)
    for size, exact in zip(sizes, by_hand(n, clients, gamma, alpha), strict=True):
        # What is less than a whole number by the rounding of floats only counts as one.
        assert size in {math.floor(exact), math.floor(exact + Fraction(2, 10**9))}
    assert sizes == sorted(sizes)
    assert sum(sizes) <= n


def test_sizes_by_hand():
    # gamma = 1/2 on 3 clients: the powers 1/4, 1/2, 1 of 7/4, and alpha / 3 each.
    assert Classes(balancedness=0.5, minimum_share=0.3).sizes(700, 3) == [140, 210, 350]
    assert Classes(balancedness=0.5, minimum_share=0.0).sizes(700, 3) == [100, 200, 400]
    assert Classes(balancedness=0.5, minimum_share=1.0).sizes(700, 3) == [233, 233, 233]


@given(n=st.integers(1, 10**6), clients=st.integers(1, 1000), alpha=st.floats(0, 1))
@settings(deadline=None)
def test_balanced_clients_get_the_same(n, clients, alpha):
    assert Classes(minimum_share=alpha).sizes(n, clients) == [n // clients] * clients


@st.composite
def problems(draw):
    """Labels of some classes, not all equally frequent, and a scheme that `check` lets pass."""
    classes = draw(st.integers(1, 10))
    counts = draw(st.lists(st.integers(1, 60), min_size=classes, max_size=classes))
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(classes) * 3 + 5, counts))
    scheme = Classes(
        classes_per_client=draw(st.integers(1, classes)),
        balancedness=draw(st.sampled_from([1.0, 0.99, 0.9, 0.5])),
        minimum_share=draw(st.sampled_from([0.0, 0.1, 0.9])),
    )
    clients = draw(st.integers(1, min(30, len(labels))))
    assume(scheme.sizes(len(labels), clients)[0] > 0)
    return labels, scheme, clients, draw(st.integers(0, 5))


@given(problems())
@settings(max_examples=100, deadline=None)
def test_every_client_gets_its_number_of_examples_that_no_other_has(problem):
    labels, scheme, clients, seed = problem
    scheme.check(labels, clients)
    parts = scheme.split(labels, clients, seed)
    assert [len(part) for part in parts] == scheme.sizes(len(labels), clients)
    everything = np.concatenate(parts)
    assert len(np.unique(everything)) == len(everything)
    assert everything.min() >= 0
    assert everything.max() < len(labels)
    again = scheme.split(labels, clients, seed)
    assert all(np.array_equal(a, b) for a, b in zip(parts, again, strict=True))


@given(problems())
@settings(max_examples=100, deadline=None)
def test_every_client_walks_through_the_classes(problem):
    """Against the walk as the paper's authors define it, on what each client found left."""
    labels, scheme, clients, seed = problem
    classes = sorted(set(labels.tolist()))
    left = {label: int((labels == label).sum()) for label in classes}
    for part in scheme.split(labels, clients, seed):
        portion = max(1, len(part) // scheme.classes_per_client)
        got = {label: int((labels[part] == label).sum()) for label in classes}
        walks = []
        for start in range(len(classes)):
            budget, rest, place = len(part), dict(left), start
            while budget:
                label = classes[place % len(classes)]
                take = min(portion, rest[label], budget)
                rest[label] -= take
                budget -= take
                place += 1
            walks.append({label: left[label] - rest[label] for label in classes})
        assert got in walks
        left = {label: left[label] - got[label] for label in classes}


@pytest.mark.parametrize("classes", [1, 2, 5])
def test_no_more_classes_than_asked_for_while_there_is_enough_of_each(classes):
    labels = np.repeat(np.arange(10), 2000)
    parts = Classes(classes_per_client=classes).split(labels[::-1], 100, 1)[:10]
    for part in parts:
        held = np.unique(labels[::-1][part])
        assert len(held) == classes
        gaps = np.diff([*held, held[0] + 10])
        assert (np.sort(gaps) == [*[1] * (classes - 1), 11 - classes]).all(), "consecutive labels"


def test_all_classes_and_gamma_below_1_are_like_iid_but_of_unequal_size():
    labels = np.random.default_rng(1).permutation(np.repeat(np.arange(10), 6000))
    parts = Classes(classes_per_client=10, balancedness=0.95).split(labels, 100, 1)
    assert len(parts[-1]) > 10 * len(parts[0])
    for part in parts[50:90]:
        counts = np.bincount(labels[part], minlength=10)
        assert counts.max() - counts.min() <= 9


def test_examples_of_a_class_are_drawn_and_starts_differ():
    labels = np.repeat(np.arange(10), 600)
    scheme = Classes(classes_per_client=1)
    one, other = scheme.split(labels, 100, 1), scheme.split(labels, 100, 2)
    assert not np.array_equal(np.sort(one[0]), np.arange(one[0].min(), one[0].min() + 60))
    assert len({int(labels[part[0]]) for part in one}) == 10
    assert not all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def test_the_first_class_is_the_same_in_every_split_of_a_data_set():
    train, test = np.repeat(np.arange(10), 400), np.repeat(np.arange(10), 100)
    scheme = Classes(classes_per_client=2)
    pairs = zip(scheme.split(train, 50, 3), scheme.split(test, 50, 3), strict=True)
    assert all(train[mine[0]] == test[held_out[0]] for mine, held_out in list(pairs)[:10])
