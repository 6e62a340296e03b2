"""The first table of the page; that of the project is in test_project.py."""

import pytest

from paper.headlines import compare


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
