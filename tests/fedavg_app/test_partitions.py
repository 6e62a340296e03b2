import numpy as np
import pytest

from fedavg_app import partitions
from fedavg_app.config import RunConfig
from fedavg_app.errors import ConfigError
from fedavg_app.partitions import partition, split_labels
from fedavg_app.schemes import Dirichlet, Iid
from tasks.data.store import DataOptions, Dataset, Split


@pytest.fixture
def labels():
    """60,000 labels in MNIST's own proportions, shuffled."""
    counts = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    return np.random.default_rng(0).permutation(np.repeat(np.arange(10), counts))


def test_iid_gives_600_distinct_examples_each(labels):
    parts = split_labels(labels, "iid-test", "iid", {}, 100, 1)
    assert [len(part) for part in parts] == [600] * 100
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(60_000))
    # A random 600 of 60,000 has all ten classes, each near 10 %.
    shares = np.array([np.bincount(labels[part], minlength=10) / 600 for part in parts])
    assert shares.min() > 0.04
    assert shares.max() < 0.18


def test_iid_shares_out_a_remainder(labels):
    parts = split_labels(labels[:1003], "iid-rest", "iid", {}, 10, 1)
    assert sorted(len(part) for part in parts) == [100] * 7 + [101] * 3
    assert len(np.unique(np.concatenate(parts))) == 1003


def test_shards_are_the_papers_pathological_split(labels):
    parts = split_labels(labels, "shards-test", "shards", {}, 100, 1)
    assert [len(part) for part in parts] == [600] * 100
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(60_000))
    # Two shards of 300 of the sorted labels: where does each shard start?
    place = np.empty(60_000, dtype=int)
    place[np.argsort(labels, kind="stable")] = np.arange(60_000)
    shards = [np.unique(place[part] // 300) for part in parts]
    assert all(len(held) == 2 for held in shards)
    classes = [len(np.unique(labels[part])) for part in parts]
    assert max(classes) <= 4
    assert np.mean(np.array(classes) <= 2) > 0.8  # "most clients only have two digits"
    # Assigned at random, not client k the shards k and k + 100, nor neighbours.
    differences = {int(held[1] - held[0]) for held in shards}
    assert len(differences) > 30


def test_shards_per_client_is_an_argument(labels):
    parts = split_labels(labels, "shards-one", "shards", {"shards_per_client": 1}, 10, 1)
    assert all(len(np.unique(labels[part])) <= 3 for part in parts)


@pytest.mark.parametrize("scheme", partitions.SCHEMES)
def test_a_partition_is_fixed_by_the_seed(labels, scheme):
    if scheme == "dirichlet":
        labels = labels[:3000]  # flwr_datasets draws slowly
    if scheme == "natural":
        labels = np.random.default_rng(1).integers(0, 100, 60_000)  # 100 owners
    first = split_labels(labels, "seeded", scheme, {}, 20, 1)
    partitions._cached.cache_clear()
    chosen = partitions.SCHEMES[scheme]()
    computed = chosen.split(labels, 20, chosen.settle(labels, 20, 1))
    other = split_labels(labels, "seeded", scheme, {}, 20, 2)
    assert all(np.array_equal(a, b) for a, b in zip(first, computed, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(first, other, strict=True))


def test_a_partition_is_computed_once_for_all_processes(labels, monkeypatch):
    first = split_labels(labels, "cached", "iid", {}, 7, 1)
    monkeypatch.setattr(Iid, "split", lambda *_: pytest.fail("computed again"))
    partitions._cached.cache_clear()
    again = split_labels(labels, "cached", "iid", {}, 7, 1)
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))


def test_train_and_test_shards_of_a_client_have_the_same_classes():
    train = np.repeat(np.arange(10), 400)
    test = np.repeat(np.arange(10), 100)
    a = split_labels(train, "same-train", "shards", {}, 50, 3)
    b = split_labels(test, "same-test", "shards", {}, 50, 3)
    for mine, held_out in zip(a, b, strict=True):
        assert set(train[mine]) == set(test[held_out])


def test_unequal_shards_are_runs_of_the_sorted_examples_in_the_papers_sizes(labels):
    parts = split_labels(labels, "unequal", "shards", {"balancedness": 0.8}, 10, 1)
    place = np.empty(60_000, dtype=int)
    place[np.argsort(labels, kind="stable")] = np.arange(60_000)
    shares = [0.1 / 20 + 0.9 * 0.8**i / sum(0.8**j for j in range(20)) for i in range(20)]
    sizes = sorted(int(share * 60_000) for share in shares)
    # Each client has two runs of the formula's lengths, or one where both are neighbours.
    left = sizes.copy()
    for part in parts:
        places = np.sort(place[part])
        runs = np.split(places, np.flatnonzero(np.diff(places) > 1) + 1)
        if len(runs) == 2:
            for run in runs:
                left.remove(len(run))
    assert len(left) <= 4
    held = np.concatenate(parts)
    assert len(np.unique(held)) == len(held) == sum(sizes)


def test_dirichlet_gives_each_class_in_the_drawn_proportions(labels):
    labels = labels[:6000]
    few = split_labels(labels, "dirichlet", "dirichlet", {"alpha": 0.1}, 10, 1)
    many = split_labels(labels, "dirichlet", "dirichlet", {"alpha": 100.0}, 10, 1)
    for parts in (few, many):
        assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(6000))

    def largest(parts):
        """The mean share of a class that its largest holder has."""
        counts = np.array([np.bincount(labels[part], minlength=10) for part in parts])
        return (counts.max(axis=0) / counts.sum(axis=0)).mean()

    # Of Dir(0.1) over 10 clients the largest share is 0.6 or so, of Dir(100) little above 0.1.
    assert largest(few) > 0.4
    assert largest(many) < 0.2


def test_dirichlet_gives_a_clients_test_examples_the_classes_of_its_training_examples():
    train, test = np.repeat(np.arange(10), 1000), np.repeat(np.arange(10), 200)
    a = split_labels(train, "dir-train", "dirichlet", {"alpha": 0.3}, 8, 5)
    b = split_labels(test, "dir-test", "dirichlet", {"alpha": 0.3}, 8, 5)
    for mine, held_out in zip(a, b, strict=True):
        have = np.bincount(train[mine], minlength=10) / 1000
        assert np.abs(np.bincount(test[held_out], minlength=10) / 200 - have).max() < 0.01


def test_what_makes_training_draws_repeat_repeats_those_of_the_test_set():
    """Where a first draw leaves someone with too little, both splits follow the same later one."""
    train, test = np.repeat(np.arange(10), 600), np.repeat(np.arange(10), 200)
    splits = [Split(np.zeros(len(part)), part) for part in (train, test)]
    data = Dataset(*splits, DataOptions(), "", "redrawn")
    arguments = "alpha = 0.2, minimum-examples = 90"
    config = RunConfig(num_clients=20, partition="dirichlet", partition_args=arguments, seed=3)
    mine, held_out = partition(data, "train", config), partition(data, "test", config)
    first = Dirichlet(alpha=0.2)
    assert first.settle(train, 20, 3) != Dirichlet(alpha=0.2, minimum_examples=90).settle(
        train, 20, 3
    )
    for have, kept in zip(mine, held_out, strict=True):
        shares = np.bincount(train[have], minlength=10) / 600
        assert np.abs(np.bincount(test[kept], minlength=10) / 200 - shares).max() < 0.02


def test_minimum_examples_is_kept_or_named(labels):
    few = labels[:2000]
    parts = split_labels(few, "minimum", "dirichlet", {"minimum_examples": 30}, 20, 1)
    assert min(map(len, parts)) >= 30
    with pytest.raises(ConfigError, match=r"minimum-examples = 99': 10 draws left some of the 20"):
        split_labels(few, "minimum", "dirichlet", {"minimum_examples": 99}, 20, 1)


def test_owners_that_only_one_split_has_are_refused():
    splits = [Split(np.zeros(3), np.zeros(3, int), np.array(o)) for o in ([1, 1, 2], [1, 1, 1])]
    data = Dataset(*splits, DataOptions(), "", "owners differ")
    config = RunConfig(num_clients=1, partition="natural")
    with pytest.raises(ConfigError, match="the test set has other owners"):
        partition(data, "train", config)


def test_natural_gives_each_owner_a_client():
    owners = np.array([7, 3, 7, 9, 3, 7, 9])
    parts = split_labels(owners, "owners", "natural", {}, 3, 1)
    assert [part.tolist() for part in parts] == [[1, 4], [0, 2, 5], [3, 6]]
    # Fewer clients than owners: whole owners, the same ones in a split that has other examples.
    owners = np.random.default_rng(0).integers(0, 50, 1000)
    other = np.random.default_rng(1).integers(0, 50, 400)
    a = split_labels(owners, "owners-a", "natural", {}, 10, 4)
    b = split_labels(other, "owners-b", "natural", {}, 10, 4)
    for mine, held_out in zip(a, b, strict=True):
        (owner,) = set(owners[mine])
        assert set(other[held_out]) == {owner}
        assert len(mine) == (owners == owner).sum()


@pytest.mark.parametrize(
    ("scheme", "arguments", "clients", "fragment"),
    [
        ("random", {}, 10, "partition = 'random': known partitions: iid, shards, classes, "),
        ("iid", {"alpha": 1}, 10, "partition-args = 'alpha = 1': iid takes nothing"),
        ("shards", {"alpha": 1}, 10, "shards takes balancedness, minimum-share, shards-per-client"),
        ("shards", {"shards_per_client": 0}, 10, "'shards-per-client = 0': should be greater"),
        ("shards", {"shards_per_client": 2.5}, 10, "should be a valid integer"),
        ("shards", {"shards_per_client": True}, 10, "should be a valid integer"),
        ("classes", {"gamma": 1}, 10, "takes balancedness, minimum-share, classes-per-client"),
        ("classes", {"classes_per_client": 2}, 10, "there are only 1 classes"),
        ("classes", {"balancedness": 0}, 10, "'balancedness = 0': should be greater than 0"),
        ("classes", {"balancedness": 1.1}, 10, "should be less than or equal to 1"),
        ("classes", {"balancedness": float("nan")}, 10, "should be a finite number"),
        ("classes", {"balancedness": True}, 10, "should be a valid number"),
        ("classes", {"minimum_share": -0.1}, 10, "'minimum-share = -0.1': should be greater"),
        ("classes", {"minimum_share": "a"}, 10, "should be a valid number"),
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
        (
            "shards",
            {"balancedness": 0.5},
            20,
            "'balancedness = 0.5': some of the 20 clients would have none of the 100 examples",
        ),
        ("natural", {}, 2, "num-clients = 2: the data have only 1 owners; give fewer"),
        ("iid", {}, 101, "num-clients = 101: more clients than the 100 examples"),
        ("shards", {}, 60, "num-clients = 60: more clients (120 shards) than the 100 examples"),
    ],
)
def test_what_cannot_be_split_is_refused(scheme, arguments, clients, fragment):
    with pytest.raises(ConfigError) as caught:
        split_labels(np.zeros(100, dtype=np.int64), "bad", scheme, arguments, clients, 1)
    assert fragment in str(caught.value)
    assert "\n" not in str(caught.value)
