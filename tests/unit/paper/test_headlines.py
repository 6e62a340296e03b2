"""The first table of the page."""

from pathlib import Path

import pytest

from paper.cell_text import TIMES
from paper.experiments import load
from paper.headlines import HEADLINES, compare, headlines
from paper.records import RECORDS, by_run, read_all
from paper.tables import fill

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
    shown = headlines(ROOT / "results" / HEADLINES, tables)
    assert len(shown) == 10
    assert all(one["paper"] for one in shown)
    values = ("paper", "ours", "mark", "spread")

    def of(one):
        return tuple(one[key] for key in values)

    assert of(shown[0]) == ("87", "31.3", "better", "3 seeds: 29.6 to 32.7")
    speedup = next(
        one for one in shown if one["claim"].get("speedup") and "paper" not in one["claim"]
    )
    assert of(speedup) == (
        f"31.3{TIMES}", f"38.8{TIMES}", "better", "one seed (FedSGD) and 3 seeds",
    )  # fmt: skip
    other = next(one for one in shown if "VGG11*" in one["paper"])
    assert (other["spread"], other["mark"]) == ("3 seeds", "not comparable")
