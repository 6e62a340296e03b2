import numpy as np
import pytest

from fedavg_app.config import RunConfig
from fedavg_app.errors import ConfigError
from fedavg_app.partitioning import cache
from fedavg_app.partitioning.cache import PARTITIONERS, partition, split_labels
from fedavg_app.partitioning.dirichlet import Dirichlet
from fedavg_app.partitioning.iid import Iid
from tasks.data.cache import CACHE_VARIABLE
from tasks.data.dataset import DataOptions, Dataset, Split
from tests.support.labels import mnist_labels

LABELS = np.arange(1000) % 10


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Keep the partitions of each test apart; return the folder of their files."""
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    return tmp_path / "partitions"


def same(a, b):
    return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("name", PARTITIONERS)
def test_partition_is_fixed_by_the_seed(name):
    labels = mnist_labels()[:3000]  # flwr_datasets draws slowly
    if name == "natural":
        labels = np.random.default_rng(1).integers(0, 100, 3000)  # 100 owners
    stored = split_labels(labels, "seeded", name, {}, 20, 1)
    partitioner = PARTITIONERS[name]()
    computed = partitioner.split(labels, 20, partitioner.resolve_seed(labels, 20, 1))
    assert same(stored, computed)
    assert not same(stored, split_labels(labels, "seeded", name, {}, 20, 2))


def test_partition_is_computed_once_for_all_processes(monkeypatch):
    first = split_labels(LABELS, "data", "iid", {}, 7, 1)
    monkeypatch.setattr(Iid, "split", lambda *_: pytest.fail("computed again"))
    cache._load.cache_clear()
    assert same(first, split_labels(LABELS, "data", "iid", {}, 7, 1))


@pytest.mark.parametrize(
    "change",
    [
        {"fingerprint": "other data"},
        {"arguments": {"shards_per_client": 3}, "name": "shards"},
        {"seed": 2},
    ],
    ids=str,
)
def test_partition_of_other_settings_has_a_file_of_its_own(folder, change):
    settings = {
        "fingerprint": "data", "name": "iid", "arguments": {}, "num_clients": 7, "seed": 1,
    }  # fmt: skip
    split_labels(LABELS, **settings)
    split_labels(LABELS, **settings)
    assert len(list(folder.iterdir())) == 1
    split_labels(LABELS, **(settings | change))
    assert len(list(folder.iterdir())) == 2


def dataset(train, test, owners=(None, None)):
    splits = [
        Split(np.zeros(len(targets)), targets, owner)
        for targets, owner in zip((train, test), owners, strict=True)
    ]
    return Dataset(*splits, DataOptions(), "", "made up")


def test_test_set_follows_the_draw_that_suits_the_training_set():
    """Where a first draw leaves a client with too little, both splits follow the same later one."""
    train, test = np.repeat(np.arange(10), 600), np.repeat(np.arange(10), 200)
    arguments = "alpha = 0.2, minimum-examples = 90"
    config = RunConfig(num_clients=20, partition="dirichlet", partition_args=arguments, seed=3)
    data = dataset(train, test)
    first = Dirichlet(alpha=0.2).resolve_seed(train, 20, 3)
    assert Dirichlet(alpha=0.2, minimum_examples=90).resolve_seed(train, 20, 3) != first
    pairs = zip(partition(data, "train", config), partition(data, "test", config), strict=True)
    for train_part, test_part in pairs:
        shares = np.bincount(train[train_part], minlength=10) / 600
        assert np.abs(np.bincount(test[test_part], minlength=10) / 200 - shares).max() < 0.02


@pytest.mark.parametrize(
    ("name", "arguments", "clients", "fragment"),
    [
        ("random", {}, 10, "partition = 'random': known partitions: iid, shards, classes, "),
        ("iid", {"alpha": 1}, 10, "partition-args = 'alpha = 1': iid takes nothing"),
        ("shards", {"shards_per_client": 0}, 10, "'shards-per-client = 0': should be greater"),
        ("classes", {"gamma": 1}, 10, "takes balancedness, minimum-share, classes-per-client"),
        ("classes", {"classes_per_client": 2}, 10, "there are only 1 classes"),
        ("classes", {"balancedness": 0}, 10, "'balancedness = 0': should be greater than 0"),
        ("classes", {"minimum_share": -0.1}, 10, "'minimum-share = -0.1': should be greater"),
        ("classes", {"classes_per_client": 1}, 101, "more clients than the 100 examples"),
        (
            "classes",
            {"classes_per_client": 1, "balancedness": 0.5},
            20,
            "'balancedness = 0.5': some of the 20 clients would have none of the 100 examples",
        ),
        ("dirichlet", {"alpha": 0.0}, 10, "'alpha = 0.0': should be greater than 0"),
        (
            "dirichlet",
            {"alpha": 0.01},
            50,
            "'alpha = 0.01, minimum-examples = 1': 10 draws left some of the 50 clients",
        ),
        ("natural", {}, 2, "num-clients = 2: the data have only 1 owners; give fewer"),
        ("iid", {}, 101, "num-clients = 101: more clients than the 100 examples"),
        ("shards", {}, 60, "num-clients = 60: more clients (120 shards) than the 100 examples"),
    ],
)
def test_impossible_partition_is_refused_in_one_line(name, arguments, clients, fragment):
    with pytest.raises(ConfigError) as caught:
        split_labels(np.zeros(100, dtype=np.int64), "bad", name, arguments, clients, 1)
    assert fragment in str(caught.value)
    assert "\n" not in str(caught.value)
