"""The contract of `strategies.compression.testing`, kept by every built-in compressor.

What this project promises beyond the contract is in `Ours`.
"""

import numpy as np
import pytest

from strategies import compression
from strategies.compression.chunked import Chunked
from strategies.compression.floats import Float16, Float32
from strategies.compression.low_rank import LowRank
from strategies.compression.quantized import Quantized
from strategies.compression.random_entries import RandomEntries
from strategies.compression.rotated import Rotated
from strategies.compression.shared_entries import SharedEntries
from strategies.compression.sign import Sign
from strategies.compression.sparse import Sparse
from strategies.compression.ternary import Ternary
from strategies.compression.testing import LAYOUT, CompressorContract
from tests.support.compression_reference import generator

MANY = 50_000
SCOPES = ("tensor", "model")


class Ours(CompressorContract):
    """What our compressors do beyond the contract."""

    mutations = 1000

    def test_update_points_in_the_direction_of_the_vector(self, compressor):
        for name, vector in self.vectors(LAYOUT).items():
            update = compressor.decode(compressor.encode(vector, LAYOUT, generator()), LAYOUT)
            product = np.dot(update.to_dense().astype(np.float64), vector.astype(np.float64))
            assert product > 0 or name == "zero"

    @pytest.mark.slow
    @pytest.mark.timeout(1800)
    def test_many_damaged_bytes(self, compressor):
        decoded = self.damage(compressor, MANY)
        assert 0.01 < decoded / MANY < 0.9, "neither all damaged beyond use nor all valid"


class TestDeterministic(Ours):
    compressors = (
        Float16(), Float32(), Sign(0.5),
        # test_chunked.py has chunks of a few entries, with which a decoding takes seconds.
        Chunked(0.05, 50, 32), Chunked(0.02, 4096, 2), Chunked(0.02, 4096, 32), Chunked(1.0, 70, 2),
        *(form(p, scope) for form in (Sparse, Ternary) for p in (0.05, 1.0) for scope in SCOPES),
    )  # fmt: skip


class TestOfSeed(Ours):
    compressors = (
        LowRank(), LowRank(1, iterations=3), Quantized(4), Quantized(2), Quantized(8, norm="max"),
        RandomEntries(0.5), Rotated(2), Rotated(1, unbiased=False),
        SharedEntries(0.5), SharedEntries(1.0, bits=4),
    )  # fmt: skip
    fixed_point, deterministic = False, False


TESTED = [compressor for contract in Ours.__subclasses__() for compressor in contract.compressors]


def test_every_built_in_compressor_is_tested():
    built = {type(compression.build(name)) for name in compression.names()}
    assert {type(compressor) for compressor in TESTED} == built


class Unstated(RandomEntries):
    """Random entries divided by their share, whose bound somebody forgot."""

    def error_bound(self, size):
        return None


def test_compressor_with_a_larger_error_than_it_states_breaks_the_contract():
    """With p = 1/4 the squared error is three times the vector's squared norm."""
    with pytest.raises(AssertionError, match=r"the squared error is [23]\.\d* of the squared norm"):
        Ours().test_error_is_within_the_stated_bound(Unstated(0.25, unbiased=True))
