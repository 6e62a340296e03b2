import numpy as np
import pytest

from fedavg_app.errors import ConfigError
from fedavg_app.partitioning.dirichlet import Dirichlet
from tests.support.labels import mnist_labels


def split(partitioner, labels, num_clients, seed):
    return partitioner.split(
        labels, num_clients, partitioner.resolve_seed(labels, num_clients, seed)
    )


def test_smaller_alpha_gives_fewer_clients_most_of_a_class():
    labels = mnist_labels()[:6000]
    few = split(Dirichlet(alpha=0.1), labels, 10, 1)
    many = split(Dirichlet(alpha=100.0), labels, 10, 1)
    for parts in (few, many):
        assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(6000))

    def largest_share(parts):
        """Return the mean over the classes of the share of the client that has most of it."""
        counts = np.array([np.bincount(labels[part], minlength=10) for part in parts])
        return (counts.max(axis=0) / counts.sum(axis=0)).mean()

    # Of Dir(0.1) over 10 clients the largest share is 0.6 or so, of Dir(100) little above 0.1.
    assert largest_share(few) > 0.4
    assert largest_share(many) < 0.2


def test_minimum_examples_is_kept_or_refused():
    labels = mnist_labels()[:2000]
    parts = split(Dirichlet(minimum_examples=30), labels, 20, 1)
    assert min(map(len, parts)) >= 30
    with pytest.raises(ConfigError, match=r"minimum-examples = 99': 10 draws left some of the 20"):
        split(Dirichlet(minimum_examples=99), labels, 20, 1)


def test_split_that_leaves_a_client_without_examples_is_refused():
    """The test set can be too small for proportions that suit the training set."""
    dirichlet = Dirichlet(alpha=0.3)
    train, test = np.repeat(np.arange(10), 1000), np.repeat(np.arange(10), 3)
    seed = dirichlet.resolve_seed(train, 20, 5)
    with pytest.raises(ConfigError, match="some of the 20 clients would have none of the 30"):
        dirichlet.split(test, 20, seed)
