import os
import sys

import pytest

from tests.support.documents import ROOT
from tests.support.processes import succeed


@pytest.fixture
def show(command_line):
    """Return a function that shows a partition of the embedded images and returns the output."""

    def run(*words):
        keys = ["--task=mnist-logistic", "--data-source=embedded"]
        status, shown, _ = command_line("partition", *keys, *words)
        assert status == 0
        return shown

    return run


def test_distribution_is_printed_and_drawn(show, tmp_path):
    path = tmp_path / "clients.png"
    shown = show("--partition=dirichlet", "--num-clients=20", f"--plot={path}")
    assert path.read_bytes().startswith(b"\x89PNG")
    assert "embedded MNIST subset" in shown
    assert "20 clients have 4,000 of 4,000 training examples" in shown
    assert str(path) in shown


def test_table_has_each_clients_examples_by_class(show):
    shown = show("--partition=shards", "--num-clients=4")
    assert "4 clients have 4,000 of 4,000 training examples, each 1,000\n" in shown
    rows = [line.split("│")[1:-1] for line in shown.splitlines() if line.startswith("│")]
    counts = [[int(cell.strip() or 0) for cell in row] for row in rows]
    assert [row[:2] for row in counts] == [[client, 1000] for client in range(4)]
    assert all(sum(row[2:]) == 1000 for row in counts)
    assert [sum(column) for column in zip(*counts, strict=True)][2:] == [400] * 10


def test_terminal_of_ascii_gets_the_table():
    words = ["partition", "--task", "mnist-logistic", "--data-source", "embedded"]
    ascii_only = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "LC_ALL": "C"}
    done = succeed([sys.executable, "simulation.py", *words], cwd=ROOT, env=ascii_only)
    assert "100 clients have" in done.stdout
