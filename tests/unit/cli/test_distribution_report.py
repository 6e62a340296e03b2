import pytest

from fedavg_app.cli.distribution_report import show
from fedavg_app.config import RunConfig
from fedavg_app.errors import ConfigError

EMBEDDED = RunConfig(
    task="mnist-logistic", data_source="embedded", partition="dirichlet", num_clients=20
)


def test_distribution_is_printed_and_drawn(tmp_path, capsys):
    show(EMBEDDED, tmp_path / "clients.png")
    assert (tmp_path / "clients.png").read_bytes().startswith(b"\x89PNG")
    shown = capsys.readouterr().out
    assert "embedded MNIST subset" in shown
    assert "20 clients have 4,000 of 4,000 training examples" in shown
    assert str(tmp_path / "clients.png") in shown


def test_picture_in_a_folder_that_does_not_exist_is_refused_before_the_work(tmp_path, capsys):
    with pytest.raises(ConfigError, match="give a folder that exists and can be written"):
        show(EMBEDDED, tmp_path / "nowhere" / "clients.png")
    assert capsys.readouterr().out == ""
