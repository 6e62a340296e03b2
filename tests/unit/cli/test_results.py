"""`evaluate` and `compare`, on small real trainings."""

import json
import shutil
import sys

import numpy as np
import pytest
from PIL import Image

from fedavg_app.cli.main import main
from fedavg_app.config import RunConfig
from tests.support import fake_runs

TRAINING = (
    "central", "--task", "mnist-logistic", "--data-source", "embedded", "--num-server-rounds", "40",
    "--evaluate-every", "10",
)  # fmt: skip


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Return the folders of two trainings that differ in the learning rate."""
    parent = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        for rate in ("0.04", "0.01"):
            words = [*TRAINING, "--learning-rate", rate, "--run-dir", str(parent)]
            patch.setattr(sys, "argv", ["fedavg", *words])
            assert main() == 0
    return sorted(parent.iterdir(), key=lambda path: rate_of(path), reverse=True)


def rate_of(folder):
    return json.loads((folder / "config.json").read_text())["learning-rate"]


def command_line(monkeypatch, capsys, *words):
    """Run a command; return what it printed."""
    capsys.readouterr()
    monkeypatch.setattr(sys, "argv", ["fedavg", *map(str, words)])
    monkeypatch.setenv("COLUMNS", "120")
    assert main() == 0
    return capsys.readouterr().out


def test_saved_model_has_the_accuracy_of_its_run(monkeypatch, capsys, folders):
    summary = json.loads((folders[0] / "summary.json").read_text())
    shown = command_line(monkeypatch, capsys, "evaluate", folders[0])
    assert f"test accuracy {summary['final-accuracy']:.4f}" in shown
    best = command_line(monkeypatch, capsys, "evaluate", folders[0], "--best")
    assert f"test accuracy {summary['best-accuracy']:.4f}" in best


def test_evaluation_on_other_data_than_the_runs_says_so(monkeypatch, capsys, folders, tmp_path):
    shutil.copytree(folders[0], tmp_path / "run")
    words = ["evaluate", tmp_path / "run"]
    assert command_line(monkeypatch, capsys, *words).startswith("data: embedded MNIST subset")
    path = tmp_path / "run/summary.json"
    summary = json.loads(path.read_text())
    path.write_text(json.dumps({**summary, "data": "full MNIST", "data-fingerprint": "0" * 64}))
    monkeypatch.setattr(sys, "argv", ["fedavg", *map(str, words)])
    assert main() == 0
    assert capsys.readouterr().err == "these are not the data of the run: full MNIST\n"
    path.unlink()
    assert "test accuracy" in command_line(monkeypatch, capsys, *words)


def test_confusion_table_counts_every_test_example_once(monkeypatch, capsys, folders):
    shown = command_line(monkeypatch, capsys, "evaluate", folders[0])
    rows = [line.split("│")[1:-1] for line in shown.splitlines() if line.startswith("│")]
    counts = np.array([[int(cell.strip() or 0) for cell in row[1:-1]] for row in rows])
    assert counts.shape == (10, 10)
    assert counts.sum() == 1000
    summary = json.loads((folders[0] / "summary.json").read_text())
    assert np.trace(counts) / 1000 == pytest.approx(summary["final-accuracy"])
    assert rows[3][-1].strip() == f"{counts[3, 3] / counts[3].sum():.1%}"


def test_comparison_names_runs_by_what_differs(monkeypatch, capsys, folders, tmp_path):
    picture = tmp_path / "both.png"
    words = ["compare", *folders, "--plot", picture, "--target", "0.5"]
    shown = command_line(monkeypatch, capsys, *words)
    rows = [line.split("│") for line in shown.splitlines() if line.startswith("│")]
    assert [row[1].strip() for row in rows] == ["learning-rate 0.04", "learning-rate 0.01"] * 2
    totals, until = rows[:2], rows[2:]
    assert [row[2].strip() for row in totals] == ["40", "40"]
    for row, folder in zip(totals, folders, strict=True):
        best = json.loads((folder / "summary.json").read_text())["best-accuracy"]
        assert row[3].strip() == f"{best:.4f}"
    assert [row[2].strip() for row in until] != ["-", "-"]
    assert Image.open(picture).size == (1800, 630)


def test_comparison_counts_rounds_bytes_and_seconds_to_the_target(monkeypatch, capsys, tmp_path):
    """The target lies half between rounds 1 and 2, at 10 and 20 MB up and twice that down."""
    traffic = {"bytes_up": 10_000_000, "bytes_down": 20_000_000}
    history = [{**entry, **traffic, "seconds": 2} for entry in fake_runs.HISTORY]
    config = RunConfig(task="mnist-logistic", learning_rate=0.1)
    for name in ("a", "b"):
        fake_runs.write(tmp_path / name, config, history, seconds=7)
    words = ["compare", tmp_path / "a", tmp_path / "b", "--target"]
    assert cells(command_line(monkeypatch, capsys, *words, "0.9"))[::2] == [
        ["fedavg (1)", "2", "0.9500", "20.0 MB", "40.0 MB", "7"],
        ["fedavg (1)", "1.5", "20.0 MB", "40.0 MB", "6"],
    ]
    assert cells(command_line(monkeypatch, capsys, *words, "0.85"))[2][1:] == [
        "1.0", "10.0 MB", "20.0 MB", "4",
    ]  # fmt: skip
    assert cells(command_line(monkeypatch, capsys, *words, "0.99"))[2][1:] == ["-"] * 4
    # Each of ten sends 1 MB a round, and is sent 2: 2.1 s at these rates.
    link = ("--up=10", "--down=20", "--latency=250")
    shown = command_line(monkeypatch, capsys, *words, "0.9", *link)
    assert {row[-1] for row in cells(shown)} == {"6.3 s"}


def cells(shown):
    """Return the cells of all tables' rows."""
    rows = [line.split("│")[1:-1] for line in shown.splitlines() if line.startswith("│")]
    return [[cell.strip() for cell in row] for row in rows]
