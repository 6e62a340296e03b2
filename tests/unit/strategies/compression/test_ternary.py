"""Sparse ternary compression: the paper's algorithm, the bytes, and their size."""

import math
import struct

import numpy as np
import pytest
from hypothesis import example, given

from strategies.compression.decoded_update import DecodeError
from strategies.compression.floats import Float32
from strategies.compression.golomb import position_bits
from strategies.compression.largest_entries import keep_count
from strategies.compression.ternary import Ternary
from tests.support import compression_reference as reference
from tests.support.compression_reference import (
    LARGEST,
    SMALLEST,
    SPARSITY,
    VGG11_SIZE,
    float32,
    generator,
    layout_of,
    no_deadline,
    vectors_in_blocks,
)


def encode(values, sparsity, *blocks):
    return Ternary(sparsity).encode(float32(values), layout_of(*blocks), generator())


def compress(values, sparsity, *blocks):
    """Return what the encoded values decode to."""
    return Ternary(sparsity).decode(encode(values, sparsity, *blocks), layout_of(*blocks))


def magnitudes(data, blocks):
    return struct.unpack_from(f"<{blocks}f", data, 5)


@no_deadline
@given(vectors_in_blocks(), SPARSITY)
@example((np.full(1000, LARGEST, np.float32), (1000,)), 1.0)  # the sum overflows float32
@example((np.full(1000, SMALLEST, np.float32), (1000,)), 1.0)
def test_every_block_keeps_its_largest_entries_at_their_mean_magnitude(drawn, sparsity):
    values, blocks = drawn
    update = compress(values, sparsity, *blocks)
    dense = update.to_dense()
    assert (update.size, len(dense)) == (len(values), len(values))
    start = 0
    encoded = magnitudes(encode(values, sparsity, *blocks), len(blocks))
    for size, magnitude in zip(blocks, float32(encoded), strict=True):
        part = values[start : start + size]
        kept = reference.largest(part, keep_count(size, sparsity))
        assert np.flatnonzero(dense[start : start + size]).tolist() == kept
        np.testing.assert_array_equal(
            dense[start : start + size][kept], np.sign(part[kept]) * magnitude
        )
        mean = math.fsum(abs(float(part[i])) for i in kept) / len(kept) if kept else 0
        assert float(magnitude) == pytest.approx(mean, rel=6e-8, abs=SMALLEST / 2)
        start += size


def test_bytes_by_hand():
    # 3 of 12 positions: b = 1; gaps less one are 1, 0, 8: quotients 0, 0, 4; remainders 1, 0, 0.
    values = [0, -0.5, 0.5, 0, 0, 0, 0, 0, 0, 0, 0, -2]
    head = b"\x01" + struct.pack("<Iff", 3, 0.5, 2)
    bits = int(("0011110100" + "101").ljust(16, "0"), 2).to_bytes(2, "big")
    assert encode(values, 0.5, 4, 8) == head + bits


@pytest.mark.parametrize(
    "values",
    [(math.nan, 0), (-3, 0), (0, 0), (math.inf, 0), (-0.0, 0), (3, 1), (3, -1), (3, SMALLEST)],
)
def test_magnitude_is_positive_or_zero_where_a_block_has_no_entry(values):
    data = bytearray(encode([0, 3, 0, 0, 0, 0, 0, 0], 0.25, 4, 4))
    struct.pack_into("<ff", data, 5, *values)
    with pytest.raises(DecodeError, match=r"magnitude|NaN or infinite"):
        Ternary(0.25).decode(bytes(data), layout_of(4, 4))


@pytest.mark.parametrize(
    ("p", "bits", "compression"),
    [(1 / 25, 6.085, 112.9), (1 / 100, 8.108, 351.3), (1 / 400, 10.114, 1151.7)],
)
def test_expected_bits_are_the_papers_formula(p, bits, compression):
    expected = Ternary(p).expected_bits(layout_of(VGG11_SIZE))
    assert expected / (VGG11_SIZE * p) == pytest.approx(bits + 1, abs=5e-4)
    ratio = Float32().expected_bits(layout_of(VGG11_SIZE)) / expected
    assert ratio == pytest.approx(compression, abs=0.05)


@pytest.mark.parametrize(("p", "compression"), [(1 / 25, 111), (1 / 100, 345), (1 / 400, 1130)])
def test_encoded_size_is_within_two_percent_of_the_paper(p, compression):
    values = np.random.default_rng(5).standard_normal(VGG11_SIZE, dtype=np.float32)
    data, update = encode(values, p, VGG11_SIZE), compress(values, p, VGG11_SIZE)
    assert 8 * len(data) / len(update.positions) <= 1.02 * (position_bits(p) + 1)
    assert 4 * VGG11_SIZE / len(data) >= compression
    assert reference.decode_ternary(data, (VGG11_SIZE,)) == update.to_dense().tolist()
