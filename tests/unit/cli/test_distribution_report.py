import numpy as np
import pytest
from rich.console import Console

from fedavg_app.cli.distribution_report import print_table, show
from fedavg_app.config import RunConfig
from fedavg_app.errors import ConfigError
from fedavg_app.partitioning.data_distribution import data_distribution
from tests.support.labels import labelled_dataset

EMBEDDED = RunConfig(
    task="mnist-logistic", data_source="embedded", partition="dirichlet", num_clients=100
)


def test_table_has_the_first_clients_and_a_summary_of_all(capsys):
    config = RunConfig(num_clients=25, partition="iid")
    print_table(data_distribution(labelled_dataset(np.arange(60) % 3), config), Console(width=100))
    shown = capsys.readouterr().out
    assert "class 2" in shown
    assert "19 \u2502" in shown
    assert "20 \u2502" not in shown
    assert "... and 5 more" in shown
    assert "25 clients have 60 of 60 training examples, each 2 to 3 (median 2)" in shown
    assert "classes a client has: 1 to 3 (median 2)" in shown


def test_distribution_is_printed_and_drawn(tmp_path, capsys):
    show(EMBEDDED, tmp_path / "clients.png")
    assert (tmp_path / "clients.png").read_bytes().startswith(b"\x89PNG")
    shown = capsys.readouterr().out
    assert "embedded MNIST subset" in shown
    assert "100 clients have 4,000 of 4,000 training examples" in shown
    assert str(tmp_path / "clients.png") in shown


def test_partition_that_the_task_does_not_have_is_refused():
    with pytest.raises(ConfigError, match="partition = 'natural': mnist-logistic can be split by"):
        show(EMBEDDED.model_copy(update={"partition": "natural"}), None)


def test_picture_in_a_folder_that_does_not_exist_is_refused_before_the_work(tmp_path, capsys):
    with pytest.raises(ConfigError, match="its folder does not exist; make it first"):
        show(EMBEDDED, tmp_path / "nowhere" / "clients.png")
    assert capsys.readouterr().out == ""
