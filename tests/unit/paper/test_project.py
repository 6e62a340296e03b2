"""The project's own experiments, records and claims, and how claims are compared."""

import tomllib

import pytest

from fedavg_app.config import parse_saved
from paper.boards import load_boards, standings
from paper.cells import compare, headlines
from paper.experiments import in_order, load
from paper.records import RECORDS, by_run, find, read_all
from paper.report import HEADLINES
from paper.tables import fill
from paper.text import TIMES
from tests.support.documents import ROOT

EXPERIMENTS = sorted((ROOT / "paper" / "experiments").glob("*.toml"))


@pytest.fixture(scope="module")
def stored():
    return read_all(ROOT / "results" / RECORDS)


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: path.stem)
def test_each_experiment_is_valid(path):
    runs = in_order(load(path).cells())
    # The slug is the record's file name: unique, and short enough for what `replacing` adds.
    slugs = {run.slug for _, run in runs}
    assert len(slugs) == len(runs)
    assert max(map(len, slugs)) <= 230


def test_each_record_has_a_valid_config_and_is_in_a_table_or_on_a_board(stored):
    assert len(stored) >= 128
    for record in stored:
        assert parse_saved(record.config).task == record.config["task"]
        assert len(record.history.round) == len(record.history.value) > 1
    shown = set()
    for experiment in map(load, EXPERIMENTS):
        records, runs = by_run(stored, experiment.data), in_order(experiment.cells())
        shown |= {found.path for _, run in runs if (found := find(records, run.config))}
    for board in load_boards(ROOT / "paper" / "boards"):
        shown |= {run.path for row in standings(board, stored) for run in row.runs}
    assert {run.path for run in stored} == shown


def test_twelve_claims_are_shown_with_the_papers_value_and_ours(stored):
    claims = tomllib.loads((ROOT / "results" / HEADLINES).read_text())["claims"]
    named = {claim["experiment"] for claim in claims}
    tables = {one.name: (one.measure, fill(one, by_run(stored, one.data)))
              for one in map(load, EXPERIMENTS) if one.name in named}  # fmt: skip
    shown = headlines(ROOT / "results" / HEADLINES, tables)
    assert len(shown) == 12
    assert all(row["paper"] for row in shown)

    def of(row):
        return tuple(row[key] for key in ("paper", "ours", "mark", "spread"))

    assert of(shown[0]) == ("87", "31.3", "better", "3 seeds: 29.6 to 32.7")
    speedup = next(row for row in shown
                   if row["claim"].get("speedup") and "paper" not in row["claim"])  # fmt: skip
    assert of(speedup) == (
        f"31.3{TIMES}", f"38.8{TIMES}", "better", "one seed (FedSGD) and 3 seeds",
    )  # fmt: skip
    other = next(row for row in shown if "until" in row["paper"])
    assert (other["spread"], other["mark"]) == ("one seed", "not comparable")


@pytest.mark.parametrize(
    ("ours", "paper", "measure", "speedup", "mark"),
    [
        (20.6, 20, "rounds-to-target", False, "reproduced"),
        (22.2, 20, "rounds-to-target", False, "worse"),
        (17.9, 20, "rounds-to-target", False, "better"),
        (251.9, 280, "rounds-to-target", False, "reproduced"),  # 10 %, rounded
        (38.7, 31.3, "rounds-to-target", True, "better"),
        (20.0, 31.3, "rounds-to-target", True, "worse"),
        (0.808, 0.80, "best-accuracy", False, "reproduced"),
        (0.785, 0.80, "best-accuracy", False, "worse"),
        (0.815, 0.80, "best-accuracy", False, "better"),
    ],
)
def test_value_is_marked_by_how_it_compares_with_the_papers(ours, paper, measure, speedup, mark):
    assert compare(ours, paper, measure, speedup=speedup) == mark
