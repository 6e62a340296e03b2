"""The benchmark of engines, on the embedded images."""

import sys

import pytest

from tests.support.documents import ROOT
from tests.support.processes import succeed

SHORT = ["--engines", "app", "pfl", "--cases", "logistic", "--rounds", "6", "--repeats", "1"]


@pytest.mark.slow
def test_engine_that_is_here_is_measured_and_another_is_left_out():
    printed = succeed([sys.executable, "-m", "benchmarks.engine", *SHORT], cwd=ROOT).stdout
    first, *table = printed.splitlines()
    assert first == "pfl is left out: it needs --data-dir"
    (row,) = (line for line in table if line.startswith("| logistic"))
    work, engine, *cells = (cell.strip() for cell in row.strip("|").split("|"))
    assert (work, engine) == ("logistic", "app")
    to_round_1, a_round, to_the_end = (float(cell.split()[0]) for cell in cells)
    assert to_round_1 + 2 * a_round < to_the_end  # of rounds 4 and 5
