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


def test_table_has_each_clients_examples_by_class(capsys):
    show(EMBEDDED.model_copy(update={"partition": "shards", "num_clients": 4}), None)
    shown = capsys.readouterr().out
    assert "4 clients have 4,000 of 4,000 training examples, each 1,000\n" in shown
    rows = [line.split("│")[1:-1] for line in shown.splitlines() if line.startswith("│")]
    counts = [[int(cell.strip() or 0) for cell in row] for row in rows]
    assert [row[:2] for row in counts] == [[client, 1000] for client in range(4)]
    assert all(sum(row[2:]) == 1000 for row in counts)
    assert [sum(column) for column in zip(*counts, strict=True)][2:] == [400] * 10
