"""The built-in partitioners, against `flwr_datasets`, the papers' formulas and their code."""

import math
from fractions import Fraction
from itertools import product

import datasets
import numpy as np
import pytest
from flwr_datasets.partitioner import DirichletPartitioner, IidPartitioner, ShardPartitioner
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fedavg_app.partitioning.schemes import Classes, Dirichlet, Iid, Natural, Shards
from tasks.training.random_streams import derive_seed, numpy_generator
from tests.support.labels import mnist_labels


def iid(clients, labels):
    order = numpy_generator(5, "partition").permutation(len(labels))
    return Iid(), IidPartitioner(clients), order


def dirichlet(clients, labels):
    library = DirichletPartitioner(clients, "label", alpha=2.0, min_partition_size=0, seed=5)
    return Dirichlet(alpha=2.0), library, np.arange(len(labels))


def shards(clients, labels, each=2):
    seed = derive_seed(5, "partition")
    library = ShardPartitioner(clients, "label", each, shuffle=False, seed=seed)
    return Shards(shards_per_client=each), library, np.argsort(labels, kind="stable")


@pytest.mark.parametrize(
    ("kind", "examples", "clients"),
    [
        *product([iid, dirichlet], [100, 103], [10, 1]),
        # The library leaves out examples that do not fill a shard.
        *[(shards, 100, 10), (shards, 70, 7), (shards, 60, 1)],
    ],
)
def test_partition_is_that_of_flwr_datasets(kind, examples, clients):
    labels = np.random.default_rng(1).integers(0, 4, examples)
    ours, library, order = kind(clients, labels)
    library.dataset = datasets.Dataset.from_dict({"label": labels[order], "index": order})
    for number, part in enumerate(ours.split(labels, clients, 5)):
        assert part.tolist() == list(library.load_partition(number)["index"])


def test_each_owner_is_a_client():
    owners = np.array([7, 3, 7, 9, 3, 7, 9])
    parts = Natural().split(owners, 3, 1)
    assert [part.tolist() for part in parts] == [[1, 4], [0, 2, 5], [3, 6]]


def test_fewer_clients_than_owners_are_whole_owners_the_same_in_both_splits():
    train = np.random.default_rng(0).integers(0, 50, 1000)
    test = np.random.default_rng(1).integers(0, 50, 400)
    pairs = zip(Natural().split(train, 10, 4), Natural().split(test, 10, 4), strict=True)
    for train_part, test_part in pairs:
        (owner,) = set(train[train_part])
        assert set(test[test_part]) == {owner}
        assert len(train_part) == (train == owner).sum()


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


def test_unequal_shards_are_runs_of_the_sorted_examples_in_the_papers_sizes():
    labels = mnist_labels()
    parts = Shards(balancedness=0.8).split(labels, 10, 1)
    places = np.empty(len(labels), dtype=int)  # in the order sorted by label
    places[np.argsort(labels, kind="stable")] = np.arange(len(labels))
    shares = [0.1 / 20 + 0.9 * 0.8**i / sum(0.8**j for j in range(20)) for i in range(20)]
    left, neighbours = [share * 60_000 for share in shares], 0
    # Each client has two runs of the formula's lengths, or one where both are neighbours.
    for part in parts:
        of_client = np.sort(places[part])
        runs = np.split(of_client, np.flatnonzero(np.diff(of_client) > 1) + 1)
        if len(runs) == 2:
            for run in runs:
                (size,) = (size for size in left if abs(size - len(run)) < 1)
                left.remove(size)
        else:
            neighbours += 1
    assert len(left) == 2 * neighbours < 10
    assert sorted(np.concatenate(parts)) == list(range(60_000))


@pytest.mark.parametrize("arguments", [{}, {"balancedness": 0.98}])
@pytest.mark.parametrize("clients", [50, 80, 110, 120, 150])
def test_clients_training_and_test_examples_have_the_same_classes(clients, arguments):
    """With most of these numbers a split of MNIST's sizes has no shards of one size."""
    train, test = np.repeat(np.arange(10), 6000), np.repeat(np.arange(10), 1000)
    shards = Shards(**arguments)
    pairs = zip(shards.split(train, clients, 3), shards.split(test, clients, 3), strict=True)
    for train_part, test_part in pairs:
        classes = (np.bincount(of, minlength=10) for of in (train[train_part], test[test_part]))
        shares, own = (counts / counts.sum() for counts in classes)
        assert np.abs(shares - own).sum() / 2 < 0.1


def test_no_example_is_left_out_and_sizes_differ_by_one():
    """Shards of len // count would leave out 1,000 of 4,000: the last two classes."""
    parts = Shards(shards_per_client=3).split(np.repeat(np.arange(10), 400), 1000, 1)
    assert sorted(np.concatenate(parts)) == list(range(4000))
    assert {len(part) for part in parts} <= {3, 4, 5, 6}
