import numpy as np
import pytest
from rich.console import Console

from fedavg_app.config import RunConfig
from fedavg_app.errors import ConfigError
from fedavg_app.holdings import find_holdings, print_table, show
from tasks.data.store import DataOptions, Dataset, Split


def dataset(targets, owners=None):
    split = Split(np.zeros(len(targets)), np.asarray(targets), owners)
    return Dataset(split, split, DataOptions(), "made up", f"{np.asarray(targets).sum()}")


def test_the_counts_are_those_of_the_clients_examples():
    targets = np.repeat([0, 1, 2], [10, 20, 30])
    config = RunConfig(num_clients=4, partition="shards", partition_args="shards-per-client = 1")
    holdings = find_holdings(dataset(targets), config)
    assert holdings.sizes.tolist() == [15] * 4
    assert holdings.classes.sum(axis=0).tolist() == [10, 20, 30]
    # Sorted and cut every 15: (10, 5, 0), (0, 15, 0), (0, 0, 15), (0, 0, 15) in some order.
    assert sorted(map(tuple, holdings.classes.tolist())) == [
        (0, 0, 15), (0, 0, 15), (0, 15, 0), (10, 5, 0),
    ]  # fmt: skip


def test_the_table_names_clients_and_sums_up_the_rest(capsys):
    targets = np.arange(60) % 3
    config = RunConfig(num_clients=25, partition="iid")
    print_table(find_holdings(dataset(targets), config), Console(width=100))
    shown = capsys.readouterr().out
    assert "class 2" in shown
    assert "19 \u2502" in shown
    assert "20 \u2502" not in shown
    assert "... and 5 more" in shown
    assert "25 clients have 60 of 60 training examples, each 2 to 3 (median 2)" in shown
    assert "classes a client has: 1 to 3 (median 2)" in shown


def test_owners_have_sizes_but_no_classes():
    owners = np.array([5, 5, 6, 7, 7, 7])
    data = dataset(np.zeros((6, 80), dtype=np.int64), owners)
    holdings = find_holdings(data, RunConfig(num_clients=3, partition="natural"))
    assert holdings.sizes.tolist() == [2, 1, 3]
    assert holdings.classes is None


def test_it_is_shown_and_drawn(tmp_path, capsys):
    config = RunConfig(task="mnist-logistic", data_source="embedded", partition="dirichlet")
    show(config, tmp_path / "who.png")
    assert (tmp_path / "who.png").read_bytes().startswith(b"\x89PNG")
    shown = capsys.readouterr().out
    assert "embedded MNIST subset" in shown
    assert "100 clients have 4,000 of 4,000 training examples" in shown
    assert str(tmp_path / "who.png") in shown
    with pytest.raises(ConfigError, match="partition = 'natural': mnist-logistic can be split by"):
        show(config.model_copy(update={"partition": "natural"}), None)
