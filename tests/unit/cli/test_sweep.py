"""The command `sweep`, with runs that take no time."""

import pytest

from fedavg_app.sweep import run_all, run_process
from tests.support.fake_runs import HISTORY, FakeRuns, files

GRID = """
task = "mnist-logistic"
num-clients = 10
seed = [1, 2]
"""
REASON = "no usable reply in round 2: array 'b' has NaN or infinite values"


@pytest.fixture
def sweep(tmp_path, monkeypatch, command_line):
    """Return a function that runs the command on a grid, with the files that each run leaves."""
    monkeypatch.setattr(run_all, "POLL_SECONDS", 0)
    monkeypatch.setenv("COLUMNS", "160")

    def run(leaves, grid=GRID, options=()):
        (tmp_path / "methods.toml").write_text(grid)
        runs = FakeRuns(leaves)
        monkeypatch.setattr(run_process, "launcher", lambda *_: runs)
        words = (tmp_path / "methods.toml", "--run-dir", tmp_path / "runs", *options)
        status, shown, error = command_line("sweep", *words)
        assert status == 0, error
        return shown, len(runs.started)

    return run


def test_line_of_a_run_says_how_it_ended(sweep, tmp_path):
    def leaves(config):
        if config.seed == 1:
            found = {"final-accuracy": 0.9, "target-accuracy": 0.9, "rounds-to-target": 1.5}
            return files(config, HISTORY, **found), 0
        return files(
            config, HISTORY, status="diverged", reason=REASON, **{"final-accuracy": 0.1}
        ), 1

    shown, _ = sweep(leaves, options=("--plot", tmp_path / "methods.png"))
    assert (tmp_path / "methods.png").read_bytes().startswith(b"\x89PNG")
    lines = [line.rpartition(", ")[0] for line in shown.splitlines() if line[1:2] == "/"]
    assert lines == [
        "1/2  seed 1, fedavg: finished after round 2, accuracy 0.9500 at best, 0.9000 at last, "
        "1.5 rounds to 0.9",
        "2/2  seed 2, fedavg: diverged after round 2, accuracy 0.9500 at best, 0.1000 at last",
    ]
    assert [row.split() for row in shown.splitlines() if "fedavg (diverged)" in row]
    assert "done," not in shown


def test_finished_run_keeps_no_checkpoint(sweep, tmp_path):
    def leaves(config):
        left = files(config, HISTORY, **{"final-accuracy": 0.9})
        return {**left, "checkpoint": "large"}, 0

    assert sweep(leaves)[1] == 2
    assert len(list((tmp_path / "runs").glob("*/*/summary.json"))) == 2
    assert not list((tmp_path / "runs").glob("*/*/checkpoint"))
    # As if the run had ended at the moment when its sweep was killed.
    folder = next((tmp_path / "runs").glob("*/*/summary.json")).parent
    (folder / "checkpoint").write_text("large")
    assert sweep(leaves)[1] == 0
    assert not (folder / "checkpoint").exists()


NAMED = """
task = "mnist-logistic"
num-clients = 10
seed = [1, 2]
[[variants]]
name = "dense"
[[variants]]
name = "sparse, p = 1/25"
strategy = "stc"
"""


def test_tables_have_the_names_of_the_variants_in_the_grids_order(sweep, tmp_path, command_line):
    def leaves(config):
        return files(config, HISTORY, **{"final-accuracy": 0.9}), 0

    shown, started = sweep(leaves, NAMED)
    assert started == 4
    assert "4/4  seed 2, sparse, p = 1/25: finished" in shown
    assert names(shown) == ["dense", "sparse, p = 1/25"]
    assert names(sweep(leaves, NAMED.replace("dense", "FedAvg"))[0])[0] == "FedAvg"
    found = sorted((tmp_path / "runs").glob("*/*/summary.json"), reverse=True)
    folders = [path.parent for path in found]
    assert names(command_line("compare", *folders)[1]) == ["FedAvg", "sparse, p = 1/25"]


def test_different_methods_with_the_same_name_are_separate_lines(sweep, tmp_path, command_line):
    def leaves(config):
        return files(config, HISTORY, **{"final-accuracy": 0.9}), 0

    sweep(leaves, NAMED)
    (tmp_path / "runs").rename(tmp_path / "before")
    sweep(leaves, NAMED.replace("seed", 'partition = "shards"\nseed'))
    folders = [path.parent for path in sorted(tmp_path.glob("*/*/*/summary.json"))]
    assert names(command_line("compare", *folders)[1]) == [
        "dense, iid", "sparse, p = 1/25, iid", "dense, shards", "sparse, p = 1/25, shards",
    ]  # fmt: skip


def test_damaged_file_of_names_is_named(sweep, tmp_path, command_line):
    sweep(lambda config: (files(config, HISTORY, **{"final-accuracy": 0.9}), 0))
    (tmp_path / "runs/sweep-names.json").write_text("[")
    status, _, error = command_line("compare", *(tmp_path / "runs").glob("*/*/"))
    assert status == 1
    assert "sweep-names.json': is damaged (" in error


def names(shown):
    """Return the names of a table's rows."""
    rows = [line.split("│")[1].strip() for line in shown.splitlines() if line.startswith("│")]
    return [name for name in rows if name]
