"""Quantised, rotated and randomly chosen entries: the papers' claims about them."""

import math
import struct

import numpy as np
import pytest

from strategies import compression
from strategies.compression.decoded_update import DecodeError
from strategies.compression.hadamard import block_sizes
from strategies.compression.quantized import Quantized
from strategies.compression.random_entries import RandomEntries
from strategies.compression.rotated import Rotated
from tests.support.compression_reference import decoded, generator, layout_of

SIZE = 3000
LAYOUT = layout_of(SIZE)


def normal(size=SIZE):
    return generator(11).standard_normal(size).astype(np.float32)


def relative_error(compressor, vector, seeds):
    """Return the mean of ||Q(v) - v||^2 / ||v||^2 over the seeds."""
    errors = [((found - vector) ** 2).sum() for found in decoded(compressor, vector, seeds)]
    return float(np.mean(errors) / (vector.astype(np.float64) ** 2).sum())


@pytest.mark.parametrize(("bits", "loss"), [(1, 0.3634), (2, 0.1175), (3, 0.03454), (4, 0.009497)])
def test_biased_error_of_rotated_is_the_distortion_of_max_quantizer(bits, loss):
    """Max 1960, table I: the mean squared error of the best quantiser of a normal variable."""
    found = relative_error(Rotated(bits, unbiased=False), normal(2**13), 20)
    assert found == pytest.approx(loss, rel=0.05)


def test_unbiased_error_of_one_bit_is_drives():
    """DRIVE, theorem 3: (pi / 2 - 1) ||v||^2 for many entries, whatever the vector."""
    sparse = np.where(generator(1).random(2**13) < 0.01, 100 * normal(2**13), 0).astype(np.float32)
    for vector in (normal(2**13), sparse):
        found = relative_error(Rotated(1), vector, 20)
        assert found == pytest.approx(math.pi / 2 - 1, rel=0.05)


@pytest.mark.parametrize("size", [255, 300, 7850, 8191, 8193, 40_001])
def test_error_is_that_of_max_quantizer_in_blocks_of_any_size(size):
    blocks = block_sizes(size)
    assert size <= sum(blocks) < size + 256
    assert set(blocks) <= {2**place for place in range(8, 14)}
    found = relative_error(Rotated(4, unbiased=False), normal(size), 5)
    assert found == pytest.approx(0.008, rel=0.3)


def transform(values):
    """Return the Walsh-Hadamard transform of a list of whole numbers, stage by stage."""
    half = 1
    while half < len(values):
        pairs = np.array(values).reshape(-1, 2, half)
        values = np.stack([pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]], axis=1).ravel()
        half *= 2
    return values


def test_decoded_bits_are_those_of_the_document():
    """docs/protocol.md, in integers: 33,500 entries are four blocks of 8,192, and two smaller."""
    size, blocks, seed = 33_500, [8192] * 4 + [512, 256], 9
    layout, padded = layout_of(size), sum(blocks)
    data = Rotated(2).encode(normal(size), layout, np.random.default_rng(seed))
    scales = np.frombuffer(data[8 : 8 + 4 * len(blocks)], "<f4").astype(np.float64)
    bits = np.unpackbits(np.frombuffer(data[8 + 4 * len(blocks) :], np.uint8)).reshape(-1, 2)
    entries = np.array([-15100, -4528, 4528, 15100])[2 * bits[:, 0].astype(int) + bits[:, 1]]
    key = int.from_bytes(data[:8], "little")
    words = np.random.Philox(key=key).random_raw(3 * padded // 64).astype("<u8")
    signs = 1 - 2 * np.unpackbits(words.view(np.uint8)).astype(int).reshape(3, padded)
    expected, start = [], 0
    for block, scale in zip(blocks, scales, strict=True):
        part = slice(start, start + block)
        values, start = entries[part], start + block
        for row in (1, 0) if block == 8192 else (2, 1, 0):
            values = transform(values) * signs[row, part]
        expected.append((values * (scale / 2**24)).astype(np.float32))
    found = Rotated(2).decode(data, layout).to_dense()
    assert np.concatenate(expected)[:size].tobytes() == found.tobytes()


def test_sparse_form_is_taken_where_it_is_smaller():
    """With one level most entries are zero; with 127 hardly any is."""
    vector = normal()
    for bits, most in ((2, 0.4), (4, 2.1), (8, 8.2)):
        compressor = compression.build("quantized", {"bits": bits})
        data = compressor.encode(vector, LAYOUT, generator())
        assert 8 * len(data) / SIZE < most


def test_quantized_bytes_by_hand():
    """docs/protocol.md: a norm of 2 and one of 0.5, s = 3, all entries and then two of them."""
    compressor, layout = Quantized(3, bucket=4), layout_of(6)
    norms = struct.pack("<ff", 2, 0.5)
    bits = "000" + "011" + "110" + "100" + "010" + "011"
    data = norms + struct.pack("<BI", 255, 6) + int(bits.ljust(24, "0"), 2).to_bytes(3)
    third = np.float32(1) / np.float32(3)
    expected = np.array([-2, 0, 2, 2 * third, -0.5 * third, 0], np.float32)
    assert compressor.decode(data, layout).to_dense().tolist() == expected.tolist()
    # Two entries, -3 and 1, at 1 and 4: b = 0, gaps less one are 1 and 2.
    data = norms + struct.pack("<BI", 0, 2) + bytes([0b000_100_00, 0b10_110_000])
    expected = np.array([0, -2, 0, 0, 0.5 * third, 0], np.float32)
    assert compressor.decode(data, layout).to_dense().tolist() == expected.tolist()
    with pytest.raises(DecodeError, match="a level is beyond 3"):
        compressor.decode(norms + struct.pack("<BI", 255, 6) + b"\xff\xff\xc0", layout)


@pytest.mark.parametrize(
    ("b", "count", "rest"),
    [(255, 3, bytes(2)), (255, 4, bytes(3)), (255, 5, bytes(3)), (0, 2**32 - 1, b""), (32, 0, b"")],
)
def test_quantized_head_that_does_not_fit_is_rejected(b, count, rest):
    with pytest.raises(DecodeError, match=r"entries|bytes"):
        Quantized().decode(bytes(4) + struct.pack("<BI", b, count) + rest, layout_of(4))


@pytest.mark.parametrize("sparsity", [0.01, 0.3, 0.7, 1.0])
def test_random_positions_are_those_of_the_document(sparsity):
    compressor, k = RandomEntries(sparsity), round(sparsity * SIZE)
    data = compressor.encode(normal(), LAYOUT, generator())
    assert len(data) == 8 + 4 * k
    update = compressor.decode(data, LAYOUT)
    words = np.random.Philox(key=int.from_bytes(data[:8], "little")).random_raw(k + 1).tolist()
    first, *drawn = [word >> 32 for word in words]
    starts = [i * SIZE // k for i in range(k + 1)]
    within = [w * (starts[i + 1] - starts[i]) // 2**32 for i, w in enumerate(drawn)]
    expected = sorted((first * SIZE // 2**32 + starts[i] + within[i]) % SIZE for i in range(k))
    sent = update.to_dense()
    assert np.flatnonzero(sent).tolist() == expected
    np.testing.assert_array_equal(sent[expected], normal()[expected])
