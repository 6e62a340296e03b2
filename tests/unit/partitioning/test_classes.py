import math
from fractions import Fraction

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fedavg_app.partitioning.schemes import Classes


@st.composite
def problems(draw):
    """Draw labels of unequally frequent classes, and a partitioner that accepts them."""
    classes = draw(st.integers(1, 10))
    counts = draw(st.lists(st.integers(1, 60), min_size=classes, max_size=classes))
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(classes) * 3 + 5, counts))
    partitioner = Classes(
        classes_per_client=draw(st.integers(1, classes)),
        balancedness=draw(st.sampled_from([1.0, 0.99, 0.9, 0.5])),
        minimum_share=draw(st.sampled_from([0.0, 0.1, 0.9])),
    )
    clients = draw(st.integers(1, min(30, len(labels))))
    assume(partitioner.sizes(len(labels), clients)[0] > 0)
    return labels, partitioner, clients, draw(st.integers(0, 5))


@given(problems())
@settings(max_examples=100, deadline=None)
def test_clients_take_consecutive_classes_as_the_paper_defines(problem):
    """Against the procedure of the paper's authors, on the examples that earlier clients left."""
    labels, partitioner, clients, seed = problem
    parts = partitioner.split(labels, clients, seed)
    assert [len(part) for part in parts] == partitioner.sizes(len(labels), clients)
    everything = np.concatenate(parts)
    assert len(np.unique(everything)) == len(everything)
    classes = sorted(set(labels.tolist()))
    left = {label: int((labels == label).sum()) for label in classes}
    for part in parts:
        portion = max(1, len(part) // partitioner.classes_per_client)
        taken = {label: int((labels[part] == label).sum()) for label in classes}
        possible = []  # what it would take, by the class that it starts with
        for start in range(len(classes)):
            budget, rest, place = len(part), dict(left), start
            while budget:
                label = classes[place % len(classes)]
                take = min(portion, rest[label], budget)
                rest[label] -= take
                budget -= take
                place += 1
            possible.append({label: left[label] - rest[label] for label in classes})
        assert taken in possible
        left = {label: left[label] - taken[label] for label in classes}


def test_first_class_of_a_client_is_the_same_in_training_and_test_set():
    train, test = np.repeat(np.arange(10), 400), np.repeat(np.arange(10), 100)
    partitioner = Classes(classes_per_client=2)
    pairs = zip(partitioner.split(train, 50, 3), partitioner.split(test, 50, 3), strict=True)
    for train_part, test_part in list(pairs)[:10]:
        assert train[train_part[0]] == test[test_part[0]]


def exact_sizes(n, clients, gamma, alpha):
    """Return phi_i n in ascending order, exactly, not yet rounded down."""
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
def test_sizes_are_the_formulas_rounded_down(n, clients, gamma, alpha):
    sizes = Classes(balancedness=gamma, minimum_share=alpha).sizes(n, clients)
    for size, exact in zip(sizes, exact_sizes(n, clients, gamma, alpha), strict=True):
        # A product that is below a whole number only by rounding counts as that number.
        assert size in {math.floor(exact), math.floor(exact + Fraction(2, 10**9))}
    assert sizes == sorted(sizes)
    assert sum(sizes) <= n
