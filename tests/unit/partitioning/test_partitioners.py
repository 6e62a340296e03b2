"""The partitions that `flwr_datasets` has, too, and that by natural owners."""

from itertools import product

import datasets
import numpy as np
import pytest
from flwr_datasets.partitioner import DirichletPartitioner, IidPartitioner, ShardPartitioner

from fedavg_app.partitioning.schemes import Dirichlet, Iid, Natural, Shards
from tasks.training.random_streams import derive_seed, numpy_generator


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
