from fedavg_app.cli.distribution_report import show
from fedavg_app.config import RunConfig

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
