"""The validation split, on made-up partitions and through `partition`."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedavg_app.config import RunConfig, parse_config
from fedavg_app.errors import ConfigError
from fedavg_app.partitioning import DataDigests, partition
from fedavg_app.partitioning.partitioner import Rows
from fedavg_app.partitioning.validation import set_aside
from tests.support.labels import labelled_dataset, mnist_labels
from tests.support.one_line import one_line

DATA = labelled_dataset(mnist_labels()[:3000])


@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=12),
    st.floats(0, 1, exclude_max=True),
    st.integers(0, 2**31),
)
def test_every_client_is_split_into_disjoint_parts_in_the_order_of_its_examples(sizes, share, seed):
    examples = np.random.default_rng(seed).permutation(sum(sizes))
    rows = Rows.of(examples, sizes)
    parts = set_aside(rows, share, seed)
    for client, kept, aside in zip(rows, *parts, strict=True):
        assert len(kept) >= 1
        assert len(aside) == min(round(share * len(client)), len(client) - 1)
        assert sorted([*kept, *aside]) == sorted(client)
        for part in (kept, aside):
            assert part.tolist() == [row for row in client if row in set(part)]
    again = set_aside(rows, share, seed)
    assert all(np.array_equal(a.examples, b.examples) for a, b in zip(parts, again, strict=True))


def test_every_example_of_a_client_is_equally_likely_to_be_set_aside():
    """2,000 seeds: each of 10 examples is set aside 600 times, give or take 4 deviations of 20."""
    rows, counts = Rows.of(np.arange(20), [10, 10]), np.zeros(20)
    for seed in range(2000):
        counts[set_aside(rows, 0.3, seed)[1].examples] += 1
    assert np.abs(counts - 600).max() < 4 * np.sqrt(2000 * 0.3 * 0.7)


@pytest.mark.parametrize("name", ["iid", "shards", "dirichlet"])
def test_training_examples_are_those_of_the_partition_without_the_set_aside(name):
    whole = RunConfig(partition=name, num_clients=20)
    config = whole.model_copy(update={"validation": 0.2})
    clients = partition(DATA, "train", whole)
    kept, aside = (partition(DATA, split, config) for split in ("train", "validation"))
    for client, own, out in zip(clients, kept, aside, strict=True):
        assert own.tolist() == [row for row in client if row not in set(out)]
        assert len(own) + len(out) == len(client)
        assert len(out) == min(round(0.2 * len(client)), len(client) - 1)
    tests = (partition(DATA, "test", each).examples for each in (whole, config))
    assert np.array_equal(*tests)


def test_split_is_fixed_by_the_seed_and_a_stream_of_its_own():
    rows = Rows.of(np.arange(1000), [500, 500])
    drawn = [set_aside(rows, 0.5, seed)[1].examples.tolist() for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]


def test_processes_with_different_shares_do_not_hold_the_same_examples():
    configs = [RunConfig(num_clients=20, validation=share) for share in (0.0, 0.1)]
    a, b = (DataDigests.of(DATA, partition(DATA, "train", config)) for config in configs)
    with pytest.raises(ConfigError):
        a.check(b, configs[0])


@pytest.mark.parametrize(
    ("keys", "fragment"),
    [
        ({"validation": 1.0}, "validation = 1.0: "),
        ({"validation": -0.1}, "validation = -0.1: "),
        ({"validation": 0.1, "local-arrays": "bn*"}, "validation = 0.1: leave it out: with local"),
    ],
)
def test_share_that_cannot_be_used_is_refused(keys, fragment):
    with one_line(ConfigError, fragment):
        parse_config(keys)


def test_share_without_an_example_is_refused():
    config = RunConfig(num_clients=1000, validation=0.1)  # 3 examples each
    with one_line(ConfigError, "validation = 0.1: that is no example of any client, which have 3"):
        partition(DATA, "train", config)
