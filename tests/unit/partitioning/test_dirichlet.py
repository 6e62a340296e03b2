import pytest

from fedavg_app.errors import ConfigError
from fedavg_app.partitioning.dirichlet import Dirichlet
from tests.support.labels import mnist_labels


def split(partitioner, labels, num_clients, seed):
    return partitioner.split(
        labels, num_clients, partitioner.resolve_seed(labels, num_clients, seed)
    )


def test_minimum_examples_is_kept_or_refused():
    labels = mnist_labels()[:2000]
    parts = split(Dirichlet(minimum_examples=30), labels, 20, 1)
    assert min(map(len, parts)) >= 30
    with pytest.raises(ConfigError, match=r"minimum-examples = 99': 10 draws left some of the 20"):
        split(Dirichlet(minimum_examples=99), labels, 20, 1)
