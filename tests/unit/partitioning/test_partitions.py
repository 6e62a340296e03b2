import re
import sys
from types import ModuleType

import numpy as np
import pytest

from fedavg_app.config import RunConfig
from fedavg_app.errors import ConfigError
from fedavg_app.partitioning import PARTITIONERS, DataDigests, partition
from fedavg_app.partitioning.schemes import Dirichlet
from tasks.data.dataset import DataOptions, Dataset, Split
from tests.support.documents import ROOT, examples
from tests.support.labels import labelled_dataset, mnist_labels
from tests.support.one_line import one_line


def halves(labels, num_clients, seed):
    """Split examples in their order, whatever their targets are."""
    return np.split(np.arange(len(labels)), num_clients)


def made_up(*targets):
    return Dataset(
        *(Split(np.zeros(len(labels)), labels) for labels in targets), DataOptions(), "", ""
    )


@pytest.mark.parametrize("name", PARTITIONERS)
def test_partition_is_fixed_by_the_seed(name):
    owners = np.random.default_rng(1).integers(0, 100, 3000) if name == "natural" else None
    data = labelled_dataset(mnist_labels()[:3000], owners)

    def flat(seed):
        config = RunConfig(partition=name, num_clients=20, seed=seed)
        return np.concatenate(partition(data, "train", config)).tolist()

    assert flat(1) == flat(1) != flat(2)


def test_test_set_follows_the_draw_that_suits_the_training_set():
    """If the first draw leaves a client too few examples, both splits use the same later draw."""
    train, test = np.repeat(np.arange(10), 600), np.repeat(np.arange(10), 200)
    arguments = "alpha = 0.2, minimum-examples = 90"
    config = RunConfig(num_clients=20, partition="dirichlet", partition_args=arguments, seed=3)
    data = made_up(train, test)
    first = Dirichlet(alpha=0.2).resolve_seed(train, 20, 3)
    assert Dirichlet(alpha=0.2, minimum_examples=90).resolve_seed(train, 20, 3) != first
    parts = [partition(data, split, config) for split in ("train", "test")]
    assert min(map(len, parts[0])) >= 90
    for train_part, test_part in zip(*parts, strict=True):
        shares = np.bincount(train[train_part], minlength=10) / 600
        assert np.abs(np.bincount(test[test_part], minlength=10) / 200 - shares).max() < 0.02


def test_split_that_leaves_a_client_without_examples_is_refused():
    """The test set can be too small for proportions that suit the training set."""
    train, test = np.repeat(np.arange(10), 1000), np.repeat(np.arange(10), 3)
    data = made_up(train, test)
    config = RunConfig(num_clients=20, partition="dirichlet", partition_args="alpha = 0.3", seed=5)
    assert all(map(len, partition(data, "train", config)))
    with pytest.raises(ConfigError, match="some of the 20 clients would have none of the 30 test"):
        partition(data, "test", config)


@pytest.mark.parametrize(
    ("name", "arguments", "clients", "fragment"),
    [
        ("random", "", 10, "partition = 'random': known partitions: iid, shards, classes, "),
        ("iid", "alpha = 1", 10, "partition-args = 'alpha = 1': iid takes by"),
        ("shards", "shards-per-client = 0", 10, "'shards-per-client = 0': should be greater"),
        ("classes", "gamma = 1", 10, "takes by, balancedness, minimum-share, classes-per-client"),
        ("classes", "classes-per-client = 2", 10, "there are only 1 classes"),
        ("classes", "balancedness = 0", 10, "'balancedness = 0': should be greater than 0"),
        ("classes", "minimum-share = -0.1", 10, "'minimum-share = -0.1': should be greater"),
        ("classes", "classes-per-client = 1", 101, "more clients than the 100 train examples"),
        (
            "classes", "classes-per-client = 1, balancedness = 0.5", 20,
            "balancedness = 0.5': some of the 20 clients would have none of the 100 train exa",
        ),
        ("dirichlet", "alpha = 0.0", 10, "'alpha = 0.0': should be greater than 0"),
        (
            "dirichlet", "alpha = 0.01", 50,
            "'alpha = 0.01, minimum-examples = 1': 10 draws left some of the 50 clients",
        ),
        ("natural", "", 2, "num-clients = 2: the data have only 1 owners; give fewer"),
        ("iid", "", 101, "num-clients = 101: more clients than the 100 train examples"),
        ("shards", "", 60, "num-clients = 60: more clients (120 shards) than the 100 examples"),
    ],
)  # fmt: skip
def test_impossible_partition_is_refused_in_one_line(name, arguments, clients, fragment):
    config = RunConfig(partition=name, partition_args=arguments, num_clients=clients)
    with one_line(ConfigError, fragment):
        partition(labelled_dataset(np.zeros(100, dtype=np.int64)), "train", config)


def test_split_by_label_needs_one_target_for_each_example():
    data = made_up(*[np.zeros((100, 12), np.int64)] * 2)
    with pytest.raises(ConfigError, match="partition = 'shards': an example has 12 targets; give"):
        partition(data, "train", RunConfig(partition="shards", num_clients=5))
    for own in ("iid", f"{__name__}:halves"):
        assert len(partition(data, "train", RunConfig(partition=own, num_clients=2))) == 2


def regression(targets):
    """Return a data set with these targets."""
    split = Split({"age": np.arange(len(targets)) // 5, "x": np.zeros(len(targets))}, targets)
    return Dataset(split, split, DataOptions(), "made up", "")


def too_few(split):
    return [0, 1]


def failing(split):
    return 1 // 0


def by_sign(split):
    return (split.targets < 0).astype(int)


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        ("bins:2", [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]),
        ("age", [[5, 6, 7, 8, 9], [0, 1, 2, 3, 4]]),
        (f"{__name__}:by_sign", [[5, 6, 7, 8, 9], [0, 1, 2, 3, 4]]),
    ],
)
def test_partition_goes_by_bins_a_column_or_a_function(by, expected):
    data = regression(np.linspace(1, -1, 10))
    arguments = f"classes-per-client = 1, by = '{by}'"
    config = RunConfig(partition="classes", partition_args=arguments, num_clients=2)
    parts = partition(data, "train", config)
    assert sorted(sorted(part.tolist()) for part in parts) == sorted(expected)


@pytest.mark.parametrize(
    ("by", "error"),
    [
        ("", "partition = 'shards': an example has a target of float64, which is no class; give"),
        ("height", "\"by = 'height'\": no such array; there are: age, x; or give 'bins:10'"),
        ("x", "\"by = 'x'\": gives float64 (10,): give one integer for each example"),
        ("bins:1", "\"by = 'bins:1'\": give the number of bins, 2 or more, as in bins:10"),
        (f"{__name__}:too_few", "it gave (2,) for 10 examples: give one integer for each"),
        (f"{__name__}:failing", "it raised ZeroDivisionError: "),
    ],
)
def test_partition_by_what_is_no_label_is_refused(by, error):
    config = RunConfig(partition="shards", partition_args=f"by = '{by}'", num_clients=2)
    with pytest.raises(ConfigError, match=re.escape(error)):
        partition(regression(np.linspace(1, -1, 10)), "train", config)


# From earlier versions, which kept an array for each client.
DIGESTS = {
    ("iid", ""): "c4061e70bc7392cd",
    ("shards", "shards-per-client = 3"): "9f51b6679b112ab6",
    ("shards", "balancedness = 0.99"): "56aca7329b08071b",
    ("classes", ""): "400f27cce7390389",
    ("classes", "classes-per-client = 3, balancedness = 0.9"): "f092581bd6df6d28",
    ("dirichlet", "alpha = 0.5"): "566ce7e17f3e0d64",
    ("natural", ""): "f38349ff68aeb3c7",
}


@pytest.mark.parametrize(("name", "arguments"), DIGESTS)
def test_partitions_stay_as_they_were_to_the_bit(name, arguments):
    random = np.random.default_rng(7)
    labels, owners = random.integers(0, 10, 1000), random.integers(0, 60, 1000)
    config = RunConfig(partition=name, partition_args=arguments, num_clients=23, seed=3)
    data = labelled_dataset(labels, owners if name == "natural" else None)
    found = DataDigests.of(data, partition(data, "train", config)).partition
    assert found == DIGESTS[name, arguments]


THREE_CLASSES = labelled_dataset(np.arange(60) % 3)


def split_by(monkeypatch, function, arguments=""):
    module = ModuleType("mine")
    module.split = function
    monkeypatch.setitem(sys.modules, "mine", module)
    config = RunConfig(partition="mine:split", partition_args=arguments, num_clients=3, seed=5)
    return partition(THREE_CLASSES, "train", config)


def test_function_gets_labels_clients_seed_and_arguments(monkeypatch):
    def split(labels, num_clients, seed, first=0):
        given.append((labels.tolist(), num_clients, seed, first))
        return [[first], [20, 21], np.array([40], np.uint8)]

    given = []
    parts = split_by(monkeypatch, split, "first = 7")
    assert given == [(THREE_CLASSES.train.targets.tolist(), 3, 5, 7)]
    assert [part.tolist() for part in parts] == [[7], [20, 21], [40]]
    assert {part.dtype for part in parts} == {np.dtype(np.int64)}


def test_function_of_the_page_splits_in_unequal_parts(monkeypatch):
    scope = {}
    exec(examples(ROOT / "docs" / "tasks.md")["quantity.py"], scope)
    for exponent in (0.5, 1):
        arguments = f"exponent = {exponent}"
        sizes = [len(part) for part in split_by(monkeypatch, scope["power_law"], arguments)]
        shares = np.arange(1.0, 4) ** -exponent
        assert sizes == (shares / shares.sum() * 60).astype(int).tolist()


@pytest.mark.parametrize(
    ("parts", "arguments", "problem"),
    [
        ([[0], [1]], "", "partition = '.*:.*<lambda>': 2 parts for 3 clients; return one array"),
        (None, "", "'NoneType' object is not iterable; return one array"),
        ([[0], [1], []], "", "a part is not a sequence of one index or more"),
        ([[0], [1], [0.5]], "", "a part is not a sequence of one index or more"),
        ([[0], [1], [60]], "", "an index is not from 0 to 59"),
        ([[0], [1], [1, 2]], "", "an example belongs to two clients"),
        ([[0], [1], [2]], "size = 3", "got an unexpected keyword argument 'size'"),
    ],
)
def test_invalid_partition_is_refused(monkeypatch, parts, arguments, problem):
    with pytest.raises(ConfigError, match=problem):
        split_by(monkeypatch, lambda labels, num_clients, seed: parts, arguments)


def test_what_splits_nothing_is_refused(monkeypatch):
    with pytest.raises(ConfigError, match="partition = 'mine:split': it is no function"):
        split_by(monkeypatch, 3)
