"""The tables of claims: what the papers say holds for what is printed."""

import math

import pytest

from benchmarks import compression_error
from strategies.compression.rotated import Rotated

SIZE, SEEDS = 2**13, 3


def test_error_and_bits_are_the_compressors():
    vector = compression_error.vectors(SIZE)["normal"]
    error, bits = compression_error.error(Rotated(1), vector, SEEDS)
    assert error == pytest.approx(math.pi / 2 - 1, rel=0.05)
    assert bits == pytest.approx(1, rel=0.02)


def test_errors_of_qsgd_stay_below_its_bound():
    rows = list(compression_error.qsgd_rows(SIZE, SEEDS))
    assert [row[:2] for row in rows] == [["2", "1"], ["3", "3"], ["4", "7"], ["8", "127"]]
    for _, _, bound, *errors in rows:
        assert all(float(error) < float(bound) for error in errors)


def test_eden_loses_least_at_equal_bits():
    rows = list(compression_error.equal_bits_rows(SIZE, SEEDS))
    for bits in "1234":
        group = [row for row in rows if row[0] == bits]
        least = min(group, key=lambda row: float(row[3]) + float(row[4]))
        assert least[1].endswith("biased")
        assert least[1].startswith(("DRIVE", "EDEN"))
        for row in group:
            if row[2]:
                assert float(row[3]) == pytest.approx(float(row[2]), rel=0.05)


def test_random_entries_lose_n_by_k_less_one():
    for _, claim, normal, _ in compression_error.random_rows(SIZE, 20):
        assert float(normal) == pytest.approx(float(claim), rel=0.1)


def test_low_rank_updates_of_resnet_18_are_as_small_as_the_papers():
    assert compression_error.resnet18().size == 11_173_962
    for _, paper, found in compression_error.low_rank_rows():
        assert round(float(found)) == int(paper)
