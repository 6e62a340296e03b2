import numpy as np
import pytest

from fedavg_app.partitioning.schemes import Shards
from tests.support.labels import mnist_labels


@pytest.fixture(scope="module")
def labels():
    return mnist_labels()


def sorted_places(labels):
    """Return each example's place in the order sorted by label."""
    places = np.empty(len(labels), dtype=int)
    places[np.argsort(labels, kind="stable")] = np.arange(len(labels))
    return places


def test_unequal_shards_are_runs_of_the_sorted_examples_in_the_papers_sizes(labels):
    parts = Shards(balancedness=0.8).split(labels, 10, 1)
    places = sorted_places(labels)
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
