"""The largest entries of every chunk: which are sent, and their bytes."""

import struct

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from strategies.compression.chunked import Chunked
from strategies.compression.decoded_update import DecodeError
from strategies.compression.largest_entries import keep_count
from tests.support import compression_reference as reference
from tests.support.compression_reference import (
    SMALLEST,
    SPARSITY,
    float32,
    generator,
    layout_of,
    no_deadline,
    vectors,
)


def encode(values, *arguments):
    return Chunked(*arguments).encode(float32(values), layout_of(len(values)), generator())


def decode(data, size, *arguments):
    return Chunked(*arguments).decode(data, layout_of(size)).to_dense()


def kept_of(values, sparsity, chunk):
    """Return the positions that the definition keeps, by chunks."""
    parts = [(start, values[start : start + chunk]) for start in range(0, len(values), chunk)]
    return [
        [start + i for i in reference.largest(part, keep_count(len(part), sparsity))]
        for start, part in parts
    ]


@no_deadline
@given(vectors(), SPARSITY, st.integers(1, 25))
@example(float32([-SMALLEST]), 1.0, 7)
def test_largest_entries_of_every_chunk_are_sent_unchanged(values, sparsity, chunk):
    kept = [position for part in kept_of(values, sparsity, chunk) for position in part]
    expected = np.zeros_like(values)
    expected[kept] = values[kept]
    found = decode(encode(values, sparsity, chunk, 32), len(values), sparsity, chunk, 32)
    assert found.tobytes() == expected.tobytes()


def means(part):
    """Return the entries in two bits each: the mean magnitudes of the smaller and the larger."""
    sizes = [abs(float(x)) for x in part]
    mean, sent = sum(sizes) / max(len(sizes), 1), []
    for x, size in zip(part, sizes, strict=True):
        group = [other for other in sizes if (other > mean) == (size > mean)]
        sent.append(np.copysign(sum(group) / len(group), x))
    return sent


@no_deadline
@given(vectors(entries=st.floats(-(2.0**99), 2.0**99, width=32)), SPARSITY, st.integers(1, 25))
@example(float32([1, -1, 2, 5, 3, 3, 0]), 1.0, 3)
def test_two_bits_are_a_sign_and_one_of_the_chunks_two_means(values, sparsity, chunk):
    expected = np.zeros(len(values))
    for kept in kept_of(values, sparsity, chunk):
        expected[kept] = means(values[kept])
    found = decode(encode(values, sparsity, chunk), len(values), sparsity, chunk)
    np.testing.assert_allclose(found, float32(expected), rtol=1e-6, atol=SMALLEST)


def test_bytes_are_those_of_the_document():
    """b, k, the magnitudes of two chunks, then positions, signs and which are larger."""
    data = encode([0, 1, 0, -5, 2, 0, 3], 0.75, 4)
    magnitudes = struct.pack("<4f", 1, 5, 2, 3)
    code = reference.position_code([1, 3, 4, 6], 0) + "0100" + "0101"
    padded = code + "0" * (-len(code) % 8)
    expected = bytes(int(padded[i : i + 8], 2) for i in range(0, len(padded), 8))
    assert data == struct.pack("<BI", 0, 4) + magnitudes + expected
    assert decode(data, 7, 0.75, 4).tolist() == [0, 1, 0, -5, 2, 0, 3]


def test_more_entries_than_the_sparsity_allows_are_rejected():
    """In all, and of one chunk."""
    one, most = Chunked(0.25, 4, 32), Chunked(0.5, 4, 32)
    allowed = most.encode(float32([1, 0, 0, 0, 1, 0, 0, 0]), layout_of(8), generator())
    one.decode(allowed, layout_of(8))
    for values, reason in (([1, 2, 0, 0] * 2, "k = 4"), ([1, 2, 0, 0] + [0] * 4, "a chunk has")):
        data = most.encode(float32(values), layout_of(8), generator())
        with pytest.raises(DecodeError, match=reason):
            one.decode(data, layout_of(8))


@pytest.mark.parametrize("value", [0, -0.0, -1, np.nan, np.inf])
def test_magnitude_that_is_not_positive_is_rejected(value):
    data = bytearray(encode([0, 3, 0, 0, 3, 0, 0, 0], 0.25, 8))
    struct.pack_into("<f", data, 5, value)
    with pytest.raises(DecodeError, match=r"not a positive|NaN or infinite"):
        decode(bytes(data), 8, 0.25, 8)


def test_magnitude_without_an_entry_is_rejected():
    data = bytearray(encode([0, 3, 0, 0, 3, 0, 0, 0], 0.25, 8))
    struct.pack_into("<f", data, 9, 4)
    with pytest.raises(DecodeError, match="has no entry"):
        decode(bytes(data), 8, 0.25, 8)
