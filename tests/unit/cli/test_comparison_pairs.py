"""The differences of `compare --against`, recomputed by hand."""

import csv
import re
from math import sqrt

import pytest

from fedavg_app.config import RunConfig
from tests.support import fake_runs

# Quantiles 0.975 of Student's t by degrees of freedom, from a table.
STUDENT = {2: 4.302653, 3: 3.182446}
# Final accuracies by seed: seed 5 is of one method alone.
FEDAVG, STC = {1: 0.80, 2: 0.84, 3: 0.88, 4: 0.82, 5: 0.99}, {1: 0.86, 2: 0.88, 3: 0.91, 4: 0.87}


@pytest.fixture
def run_of(tmp_path):
    """Return a function that writes a run that tests after each of its rounds."""

    def run(strategy, seed, final, rounds=2, **keys):
        config = RunConfig(task="mnist-logistic", strategy=strategy, seed=seed, **keys)
        lines = [
            fake_runs.line(number, 0.1 + (final - 0.1) * number / rounds)
            for number in range(rounds + 1)
        ]
        name = "-".join([strategy, str(seed), *map(str, keys.values())])
        return fake_runs.write(tmp_path / name, config, lines)

    return run


@pytest.fixture
def runs(run_of):
    return [
        run_of(strategy, seed, final)
        for strategy, finals in (("fedavg", FEDAVG), ("stc", STC))
        for seed, final in finals.items()
    ]


def by_hand(differences):
    number = len(differences)
    mean = sum(differences) / number
    variance = sum((value - mean) ** 2 for value in differences) / (number - 1)
    half = STUDENT[number - 1] * sqrt(variance / number)
    return mean, mean - half, mean + half


def rows_of(path):
    with path.open() as file:
        return [row for row in csv.DictReader(file) if row["row"].startswith("difference")]


def test_mean_difference_and_interval_are_those_of_the_pairs(show, runs, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    words = ("--csv", tmp_path / "a.csv", "--latex", tmp_path / "a.tex")
    shown = show("compare", *runs, "--against", "fedavg", *words)
    mean, low, high = by_hand([STC[seed] - FEDAVG[seed] for seed in STC])
    *pairs, of_mean, of_low, of_high, count = rows_of(tmp_path / "a.csv")
    assert [(row["run"], row["seed"]) for row in pairs] == [("stc", str(seed)) for seed in STC]
    found = [float(row["final_accuracy"]) for row in pairs]
    assert found == pytest.approx([0.06, 0.04, 0.03, 0.05])
    for row, expected in ((of_mean, mean), (of_low, low), (of_high, high)):
        assert float(row["final_accuracy"]) == pytest.approx(expected, rel=1e-6)
        assert row["runs"] == "4"
    assert count["final_accuracy"] == "4"
    (row,) = [
        line for line in shown[shown.index("difference from") :].splitlines() if "stc" in line
    ]
    assert [cell.strip() for cell in row.split("│")[1:5]] == ["stc", "4", "0", "+0.0450"]
    assert f"(+{low:.4f} to +{high:.4f})" in shown
    second = (tmp_path / "a.tex").read_text().split("% difference from fedavg")[1]
    assert rf"stc & 4 & {mean:.4f} [{low:.4f}, {high:.4f}] &" in second


def test_every_other_line_has_its_own_pairs(show, runs, run_of, tmp_path):
    others = [run_of("topk", seed, FEDAVG[seed] - seed / 100) for seed in (3, 5, 1)]
    show("compare", *runs, *others, "--against", "fedavg", "--csv", tmp_path / "a.csv")
    found = {
        (row["run"], row["seed"]): float(row["final_accuracy"])
        for row in rows_of(tmp_path / "a.csv")
        if row["row"] == "difference"
    }
    expected = {("stc", str(seed)): STC[seed] - FEDAVG[seed] for seed in STC}
    expected |= {("topk", str(seed)): -seed / 100 for seed in (1, 3, 5)}
    assert found == {pair: pytest.approx(value) for pair, value in expected.items()}


def test_fewer_than_three_pairs_have_their_differences_and_no_interval(show, runs, tmp_path):
    words = ("--csv", tmp_path / "a.csv", "--latex", tmp_path / "a.tex")
    shown = show("compare", *runs[:2], *runs[5:7], "--against", "stc", *words)
    shown = shown[shown.index("difference from stc") :]
    assert "-0.0600" in shown
    assert "-0.0400" in shown
    assert " to " not in shown
    low = next(row for row in rows_of(tmp_path / "a.csv") if row["row"] == "difference low")
    assert low["final_accuracy"] == ""
    second = (tmp_path / "a.tex").read_text().split("% difference from stc")[1]
    assert re.search(r"fedavg & 2 & \$-\$0.0600, \$-\$0.0400 &", second)


def test_pairs_are_of_the_same_seed_and_partition(show, run_of, tmp_path):
    """A pair of which one run did not reach the target has no rounds to it."""
    both = [
        run_of(strategy, seed, final, partition=partition)
        for partition in ("iid", "shards")
        for strategy, finals in (("fedavg", {1: 0.80, 2: 0.92}), ("stc", {1: 0.91, 2: 0.95}))
        for seed, final in finals.items()
    ]
    words = ("--group-by", "strategy", "--against", "fedavg", "--csv", tmp_path / "a.csv")
    shown = show("compare", *both[:-1], *words, "--target", "0.9")
    rows = rows_of(tmp_path / "a.csv")
    assert [float(row["final_accuracy"]) for row in rows[:3]] == pytest.approx([0.11, 0.03, 0.11])
    mean, low, high = by_hand([0.11, 0.03, 0.11])
    assert [float(row["final_accuracy"]) for row in rows[3:6]] == pytest.approx([mean, low, high])
    assert [bool(row["rounds_to_target"]) for row in rows[:3]] == [False, True, False]
    assert [row["rounds_to_target"] for row in rows[-1:]] == ["1"]
    assert "pairs" in shown


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--against", "fedAvg"], "against = 'fedAvg': give the name of a line: fedavg; stc"),
        (
            ["--against", "fedavg", *("--label", "fedavg") * 2, *("--label", "b") * 7],
            "b has two runs of seed 3, partition iid; leave one out",
        ),
        (
            ["--against", "seed 1", "--group-by", "seed"],
            "against = 'seed 1': no other line has a run of the same seed",
        ),
    ],
)
def test_differences_that_cannot_be_taken_are_refused(runs, command_line, words, problem):
    if "seed" in words:
        runs = [runs[0], runs[6]]
    status, _, error = command_line("compare", *runs, *words)
    assert status == 1
    assert problem in error
    assert len(error.splitlines()) == 1
