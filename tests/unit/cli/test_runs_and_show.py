"""The commands `runs` and `show`."""

import json

import pytest

from fedavg_app.config import CentralConfig, RunConfig
from tests.support import fake_runs


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """Make four runs in the folders where they are by default, and a damaged one elsewhere."""
    monkeypatch.chdir(tmp_path)
    made = {
        "runs/20261121-123456-a-fedavg-1234": (RunConfig(seed=3), 0.95, "finished"),
        "runs/20261120-010203-a-stc-1234": (RunConfig(strategy="stc"), 0.5, "diverged"),
        "sweeps/grid/stc-12/20261122-000000-a-stc-1": (RunConfig(strategy="stc"), 0.7, "finished"),
        "runs/renamed": (CentralConfig(num_server_rounds=30), 0.8, "finished"),
    }
    for name, (config, best, status) in made.items():
        lines = [fake_runs.line(0, 0.1), fake_runs.line(1, best)]
        fake_runs.write(tmp_path / name, config, lines, status=status)
    fake_runs.write(tmp_path / "elsewhere/run", RunConfig(), fake_runs.HISTORY)
    (tmp_path / "elsewhere/run/history.jsonl").write_text("{")
    return list(made)


@pytest.fixture
def listed(runs, command_line):
    """Return a function that lists runs and returns the rows."""

    def run(*words):
        status, shown, error = command_line("runs", *words)
        assert status == 0, error
        return [line.split() for line in shown.splitlines()[1:]]

    return run


def test_runs_are_listed_with_the_newest_last(listed, runs):
    rows = listed()
    assert [row[-1] for row in rows] == [runs[1], runs[0], runs[2], runs[3]]
    assert " ".join(rows[1]) == (
        f"2026-11-21 12:34 mnist-2nn fedavg finished accuracy 0.9500 1 10.0 MB 20.0 MB {runs[0]}"
    )
    assert rows[3][:4] == ["-", "mnist-2nn", "central", "finished"]


def test_runs_are_filtered_and_sorted(listed, runs):
    def folders(*words):
        return [row[-1] for row in listed(*words)]

    assert folders("--sort", "best") == [runs[1], runs[2], runs[3], runs[0]]
    assert folders("--sort", "when", "--reverse") == [runs[2], runs[0], runs[1], runs[3]]
    assert folders("--where", "strategy=st*", "--where", "status=finished") == [runs[2]]
    assert folders("--where", "seed=3", "runs") == [runs[0]]
    assert folders("--where", "strategy=central") == [runs[3]]
    assert folders("--where", "seed=4") == []


def test_unreadable_run_and_unknown_key_are_named(runs, command_line):
    status, _, error = command_line("runs", "elsewhere")
    assert status == 1
    assert error.splitlines()[0].startswith("left out: RUN = 'elsewhere/run': give the folder of")
    assert error.splitlines()[1].startswith("error: FOLDER = 'elsewhere': no runs there")
    status, _, error = command_line("runs", "--where", "sed=1")
    assert status == 1
    assert error.startswith(
        "error: where = 'sed=1': give KEY=VALUE with one of the keys batch-size"
    )


def test_run_is_shown_with_who_was_rejected_how_often_and_why(tmp_path, command_line, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    rejected = [{}, {"5": "late", "7": "NaN"}, {"5": "late"}, {"8": "late"}]
    lines = [fake_runs.line(at, 0.1 + at / 5, rejected=own) for at, own in enumerate(rejected)]
    config = RunConfig(strategy="stc", strategy_args="sparsity-up = 0.04", seed=1)
    found = {"status": "no-replies", "reason": "too few", "learning-rate": 0.05, "seconds": 90}
    found |= {"target-accuracy": 0.5, "rounds-to-target": 2.0}
    folder = fake_runs.write(tmp_path / "run", config, lines, **found)
    status, shown, _ = command_line("show", folder)
    assert status == 0
    for line in (
        "  strategy-args = 'sparsity-up = 0.04'", "  learning-rate: auto was 0.05",
        "no-replies after round 3 and 1.5 min: too few",
        "accuracy: best 0.7000 in round 3, final 0.7000",
        "target accuracy 0.5: reached after 2.0 rounds", "up: 30.0 MB, down: 60.0 MB",
    ):  # fmt: skip
        assert line in shown.splitlines()
    assert "partition" not in shown, "it is the default"
    assert "rejected replies: 4; training messages sent: 40" in shown
    cells = [line.split("│")[1:-1] for line in shown.splitlines() if line.startswith("│")]
    assert [[cell.strip() for cell in row] for row in cells] == [
        ["3", "1 to 3", "late", "5: 2, 8: 1"], ["1", "1", "NaN", "7: 1"],
    ]  # fmt: skip
    rounds = [line.split() for line in shown.splitlines() if line.strip().startswith("3 ")]
    assert rounds[0][:4] == ["3", "0.7000", "0.1235", "0.2500"]


def test_show_prints_ten_rounds_of_a_long_run_with_or_without_a_summary(tmp_path, command_line):
    lines = [fake_runs.line(at, 0.5) for at in range(1001)]
    folder = fake_runs.write(tmp_path / "run", CentralConfig(), lines)
    (folder / "summary.json").unlink()
    shown = command_line("show", folder)[1]
    table = shown[shown.index("round  ") :].splitlines()
    assert [int(line.split()[0]) for line in table[1:]] == [
        0, 111, 222, 333, 444, 556, 667, 778, 889, 1000,
    ]  # fmt: skip
    assert shown.splitlines()[0] == f"{folder} (central)"
    assert "unfinished after round 1000" in shown
    (folder / "history.jsonl").write_text("")
    assert "unfinished, without a round" in command_line("show", folder)[1]


def test_show_prints_the_distribution_over_the_clients_of_the_last_test(tmp_path, command_line):
    values = {str(client): client / 10 for client in range(1, 10)}
    tested = {"client_values": {"accuracy": values}, "client_metrics": {"accuracy": 0.4}}
    partial = {"partial": {"client_metrics.accuracy-mean": "9 of 10 clients"}}
    lines = [fake_runs.line(0, 0.1), fake_runs.line(1, 0.2, **tested), fake_runs.line(2, 0.3)]
    for name, own, of in (("run", {}, "9 clients"), ("fewer", partial, "9 of 10 clients")):
        changed = [lines[0], {**lines[1], **own}, lines[2]]
        folder = fake_runs.write(tmp_path / name, RunConfig(target="none"), changed)
        line = f"accuracy of {of} in round 1: mean 0.5000, p10 0.1800, p90 0.8200, worst 0.1000"
        assert line in command_line("show", folder)[1].splitlines()
    config = RunConfig(objective="min loss", target="none")
    lines[1]["client_values"] = {"loss": {"4": 0.25, "5": 0.75}}
    shown = command_line("show", fake_runs.write(tmp_path / "loss", config, lines))[1]
    line = "loss of 2 clients in round 1: mean 0.5000, p10 0.3000, p90 0.7000, worst 0.7500"
    assert line in shown.splitlines()


def test_folder_without_a_run_is_refused(tmp_path, command_line):
    status, _, error = command_line("show", tmp_path)
    assert status == 1
    assert json.dumps(str(tmp_path))[1:-1] in error
