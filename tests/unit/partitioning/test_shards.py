import numpy as np
import pytest

from fedavg_app.partitioning.shards import Shards
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
    sizes = sorted(int(share * 60_000) for share in shares)
    # Each client has two runs of the formula's lengths, or one where both are neighbours.
    left = sizes.copy()
    for part in parts:
        of_client = np.sort(places[part])
        runs = np.split(of_client, np.flatnonzero(np.diff(of_client) > 1) + 1)
        if len(runs) == 2:
            for run in runs:
                left.remove(len(run))
    assert len(left) <= 4
    used = np.concatenate(parts)
    assert len(np.unique(used)) == len(used) == sum(sizes)


def test_clients_training_and_test_examples_have_the_same_classes():
    train = np.repeat(np.arange(10), 400)
    test = np.repeat(np.arange(10), 100)
    pairs = zip(Shards().split(train, 50, 3), Shards().split(test, 50, 3), strict=True)
    for train_part, test_part in pairs:
        assert set(train[train_part]) == set(test[test_part])
