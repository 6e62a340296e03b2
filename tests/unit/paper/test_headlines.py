"""The first table of the page."""

from pathlib import Path

import pytest

from fedavg_app.errors import ConfigError
from paper.cell_text import TIMES
from paper.experiments import load
from paper.headlines import HEADLINES, Claim, compare, headlines, read_claims
from paper.records import RECORDS, by_run, read_all
from paper.tables import fill
from tests.support.made_up_results import MadeUpResults

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def tables():
    """Return the project's tables, with its records."""
    found = read_all(ROOT / "results" / RECORDS)
    experiments = [load(path) for path in sorted((ROOT / "paper" / "experiments").glob("*.toml"))]
    return {one.name: (one.measure, fill(one, by_run(found, one.data))) for one in experiments}


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


def test_ten_claims_are_shown_with_the_papers_value_and_ours(tables):
    shown = headlines(read_claims(ROOT / "results" / HEADLINES), tables)
    assert len(shown) == 10
    assert all(one.paper for one in shown)
    first = shown[0]
    assert (first.paper, first.ours, first.mark) == ("87", "31.3", "better")
    assert first.spread == "3 seeds: 29.6 to 32.7"
    speedup = next(one for one in shown if one.claim.speedup and not one.claim.paper)
    assert (speedup.paper, speedup.ours, speedup.mark) == (f"31.3{TIMES}", f"38.8{TIMES}", "better")
    assert speedup.spread == "one seed (FedSGD) and 3 seeds"
    other = next(one for one in shown if "VGG11*" in one.paper)
    assert (other.spread, other.mark) == ("3 seeds", "not comparable")


def test_claim_without_runs_says_so_and_one_that_did_not_arrive_how_far_it_came(tables):
    base = {"claim": "a", "source": "b", "experiment": "fedavg-table2-cnn", "column": "non-IID"}
    claims = [Claim(row="E = 20, B = 10", **base), Claim(row="FedSGD", **base)]
    not_run, not_reached = headlines(claims, tables)
    assert (not_run.ours, not_run.spread) == ("", "")
    assert not_run.mark == "not run"
    assert (not_reached.ours, not_reached.mark) == ("", "not reached")
    assert not_reached.spread == "best 97.9 % in 300 rounds"


def test_claim_about_a_cell_that_there_is_not_is_refused(tables):
    claim = Claim(claim="a", source="b", experiment="fedavg-table2-cnn", row="E = 3", column="IID")
    with pytest.raises(ConfigError, match="there is no cell fedavg-table2-cnn, E = 3, IID"):
        headlines([claim], tables)


@pytest.mark.parametrize("text", ["claims = 1", "[[claims]]\nclaim = 'a'", "claims ="])
def test_file_that_cannot_be_read_is_one_line(tmp_path, text):
    (tmp_path / HEADLINES).write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_claims(tmp_path / HEADLINES)
    assert "\n" not in str(caught.value)
    assert read_claims(tmp_path / "none.toml") == []


def test_seeds_that_did_not_arrive_are_counted(tmp_path):
    results = MadeUpResults(tmp_path)
    results.add(0, 0, {0: 0.1, 100: 0.95})
    for seed, accuracy in ((1, 0.95), (2, 0.94), (3, 0.5)):
        results.add(1, 0, {0: 0.1, 20: accuracy}, seed=seed, rate=0.1)
    claim = Claim(claim="a", source="b", experiment="made-up", row="fast", column="IID")
    tables = {"made-up": ("rounds-to-target", results.table())}
    faster = claim.model_copy(update={"speedup": True})
    rounds, speedup = headlines([claim, faster], tables)
    assert rounds.spread == "2 of 3 seeds: 18.8 to 19.0"
    assert speedup.spread == "one seed (slow) and 2 of 3 seeds"
