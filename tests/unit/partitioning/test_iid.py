"""The partitions that follow from the data alone: iid, and natural owners."""

import datasets
import numpy as np
import pytest
from flwr_datasets.partitioner import IidPartitioner

from fedavg_app.partitioning.iid import Iid
from fedavg_app.partitioning.natural import Natural
from tasks.training.random_streams import numpy_generator


@pytest.mark.parametrize(("examples", "clients"), [(100, 10), (103, 10), (7, 7), (60, 1)])
def test_partition_is_that_of_flwr_datasets(examples, clients):
    labels = np.zeros(examples, np.int64)
    parts = Iid().split(labels, clients, 5)
    order = numpy_generator(5, "partition").permutation(examples)
    library = IidPartitioner(clients)
    library.dataset = datasets.Dataset.from_dict({"index": order})
    for number, part in enumerate(parts):
        assert part.tolist() == library.load_partition(number)["index"]


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
