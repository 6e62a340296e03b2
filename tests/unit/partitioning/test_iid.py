import numpy as np

from fedavg_app.partitioning.iid import Iid
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
