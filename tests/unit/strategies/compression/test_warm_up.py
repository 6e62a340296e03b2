"""Sparsity that rises over the first rounds."""

import pytest

from strategies.compression.sparse import Sparse
from strategies.compression.warm_up import check_warm_up, in_round


def test_shares_are_those_of_the_paper():
    """Lin et al. 2018: 75 %, 93.75 %, 98.4375 %, 99.6 % and then 99.9 % are left out."""
    shares = [in_round(Sparse(0.001), server_round, 4).sparsity for server_round in range(1, 8)]
    assert shares[:4] == pytest.approx([0.25, 0.0625, 0.015625, 0.004], rel=0.02)
    assert shares[4:] == [0.001] * 3


def test_before_the_first_round_it_is_that_of_the_first():
    assert in_round(Sparse(0.01), 0, 3) == in_round(Sparse(0.01), 1, 3)


@pytest.mark.parametrize("rounds", [-1, 1.5, True, "2"])
def test_other_numbers_of_rounds_are_refused(rounds):
    with pytest.raises(ValueError, match=r"warmup-rounds = .*: give a whole number"):
        check_warm_up(Sparse(), rounds)
