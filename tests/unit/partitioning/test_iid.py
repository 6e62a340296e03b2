import datasets
import numpy as np
import pytest
from flwr_datasets.partitioner import IidPartitioner

from fedavg_app.partitioning.iid import Iid
from tasks.training.random_streams import numpy_generator
from tests.support.labels import mnist_labels


def test_clients_get_600_distinct_examples_of_all_classes_each():
    labels = mnist_labels()
    parts = Iid().split(labels, 100, 1)
    assert [len(part) for part in parts] == [600] * 100
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(60_000))
    # A random 600 of 60,000 has all ten classes, each near 10 %.
    shares = np.array([np.bincount(labels[part], minlength=10) / 600 for part in parts])
    assert shares.min() > 0.04
    assert shares.max() < 0.18


def test_remainder_is_shared_out_one_by_one():
    parts = Iid().split(mnist_labels()[:1003], 10, 1)
    assert sorted(len(part) for part in parts) == [100] * 7 + [101] * 3
    assert len(np.unique(np.concatenate(parts))) == 1003


@pytest.mark.parametrize(("examples", "clients"), [(100, 10), (103, 10), (7, 7), (60, 1)])
def test_partition_is_that_of_flwr_datasets(examples, clients):
    labels = np.zeros(examples, np.int64)
    parts = Iid().split(labels, clients, 5)
    order = numpy_generator(5, "partition").permutation(examples)
    library = IidPartitioner(clients)
    library.dataset = datasets.Dataset.from_dict({"index": order})
    for number, part in enumerate(parts):
        assert part.tolist() == library.load_partition(number)["index"]
