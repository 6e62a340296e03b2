import numpy as np

from fedavg_app.config import RunConfig
from fedavg_app.partitioning.data_distribution import class_deviations, data_distribution
from tests.support.labels import labelled_dataset


def test_counts_are_those_of_the_clients_examples():
    targets = np.repeat([0, 1, 2], [10, 20, 30])
    config = RunConfig(num_clients=4, partition="shards", partition_args="shards-per-client = 1")
    distribution = data_distribution(labelled_dataset(targets), config)
    assert distribution.sizes.tolist() == [15] * 4
    assert distribution.total == 60
    assert distribution.classes.sum(axis=0).tolist() == [10, 20, 30]
    # Sorted and cut every 15: (10, 5, 0), (0, 15, 0), (0, 0, 15), (0, 0, 15) in some order.
    assert sorted(map(tuple, distribution.classes.tolist())) == [
        (0, 0, 15), (0, 0, 15), (0, 15, 0), (10, 5, 0),
    ]  # fmt: skip


def test_deviations_are_from_the_shares_of_all_clients_examples():
    classes = np.array([[3, 1], [2, 2], [0, 1]])  # together 5 and 4
    expected = [[3 / 4 - 5 / 9, 1 / 4 - 4 / 9], [1 / 2 - 5 / 9, 1 / 2 - 4 / 9], [-5 / 9, 5 / 9]]
    assert np.allclose(class_deviations(classes), expected)
    assert np.array_equal(class_deviations(np.array([[2, 4], [1, 2]])), np.zeros((2, 2)))
