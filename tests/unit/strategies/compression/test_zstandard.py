"""Another compressor's bytes, packed with Zstandard."""

import struct

import numpy as np
import pytest
import zstandard

from strategies import compression
from strategies.compression.decoded_update import DecodeError
from strategies.compression.float16 import Float16
from strategies.compression.low_rank import LowRank
from strategies.compression.quantized import Quantized
from strategies.compression.ternary import Ternary
from strategies.compression.testing import cost
from strategies.compression.vector_layout import Layout
from strategies.compression.zstandard import Zstandard
from tests.support.compression_reference import generator, layout_of

LAYOUT = Layout(("weight", "bias"), ((40, 30), (40,)))
SIZE = 2 + 2 * LAYOUT.size  # of the bytes of float16
QUANTIZED = {"name": "quantized", "bits": 8, "norm": "max"}


def normal(size=LAYOUT.size):
    return generator(2).standard_normal(size, dtype=np.float32)


def frame(content, **options):
    return zstandard.ZstdCompressor(**options).compress(content)


@pytest.mark.parametrize(
    ("of", "inner"),
    [
        ("float16", Float16()),
        ("ternary", Ternary()),
        (QUANTIZED, Quantized(8, norm="max")),
        ({"name": "low-rank", "rank": 3}, LowRank(3)),
        ({"name": "zstd", "of": "ternary"}, Zstandard("ternary")),
    ],
    ids=str,
)
def test_content_is_the_other_compressors_bytes(of, inner):
    compressor = compression.build("zstd", {"of": of})
    assert compressor.inner == inner
    data = compressor.encode(normal(), LAYOUT, generator(3))
    content = inner.encode(normal(), LAYOUT, generator(3))
    assert zstandard.decompress(data) == content
    expected = inner.decode(content, LAYOUT).to_dense()
    assert np.array_equal(compressor.decode(data, LAYOUT).to_dense(), expected)
    assert compressor.expected_bits(LAYOUT) == inner.expected_bits(LAYOUT)


def test_update_of_no_bytes_is_packed_as_none():
    layout, packed = layout_of(0), Zstandard("float32")
    assert packed.encode(normal(0), layout, generator()) == b""
    assert packed.decode(b"", layout).size == 0
    with pytest.raises(DecodeError, match="the frame states 0 bytes"):
        packed.decode(frame(b""), layout)
    with pytest.raises(DecodeError, match="0 bytes"):
        packed.decode(b"", LAYOUT)


@pytest.mark.parametrize("level", [3, 19])
def test_bomb_is_refused_before_anything_is_allocated(level):
    bomb = frame(bytes(2**27), level=level)
    assert len(bomb) < 20_000
    _, peak, rejected = cost(lambda data: Zstandard().decode(data, LAYOUT), bomb)
    assert "the frame states 134217728 bytes" in str(rejected)
    assert peak < 10_000


def test_bomb_whose_frame_states_less_is_refused():
    """Four bytes of the size from the fifth on, in a frame of one segment."""
    bomb = bytearray(frame(bytes(2**20)))
    assert zstandard.get_frame_parameters(bytes(bomb)).content_size == 2**20
    struct.pack_into("<I", bomb, 5 if bomb[4] & 32 else 6, SIZE)
    assert zstandard.get_frame_parameters(bytes(bomb)).content_size == SIZE
    _, peak, rejected = cost(lambda data: Zstandard().decode(data, LAYOUT), bytes(bomb))
    assert "not a Zstandard frame" in str(rejected)
    assert peak < 20_000


VALID = frame(bytes(SIZE))
SKIPPABLE = struct.pack("<II", 0x184D2A50, SIZE) + bytes(SIZE)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (frame(bytes(SIZE), write_content_size=False), "are the most"),
        (SKIPPABLE, "not a Zstandard frame"),
        (SKIPPABLE + VALID, "not a Zstandard frame"),
        (VALID + SKIPPABLE, "not a Zstandard frame: .*unused data"),
        (VALID + VALID, "not a Zstandard frame: .*unused data"),
        (VALID + b"\0", "not a Zstandard frame: .*unused data"),
        (VALID[:-1], "not a Zstandard frame"),
        (VALID[:3], "not a Zstandard frame"),
        (b"\0", "not a Zstandard frame"),
        (frame(bytes(SIZE + 2)), "2484 bytes, not 2 and 2 for each of 1240"),
        (frame(b"\0\0" + b"\xff" * (SIZE - 2)), "a value is NaN or infinite"),
    ],
)
def test_other_bytes_are_refused(data, reason):
    assert not Zstandard().decode(VALID, LAYOUT).to_dense().any()
    with pytest.raises(DecodeError, match=reason):
        Zstandard().decode(data, LAYOUT)


@pytest.mark.parametrize(
    "of",
    [
        {"name": "quantized", "bits": 2, "norm": "max", "bucket": 10**6},
        {"name": "sparse", "sparsity": 1.0},
        {"name": "ternary", "sparsity": 1.0},
        "sign",
        "random",
        {"name": "rotated", "bits": 4},
        "float32",
    ],
    ids=str,
)
def test_every_update_of_another_compressor_fits(of):
    """Also those that are longer than the formula: equal entries, half zeros, tiny models."""
    for layout in (LAYOUT, layout_of(1), layout_of(1, 0, 1, 1), layout_of(9000)):
        half = np.where(generator(1).random(layout.size) < 0.5, 0, 1).astype(np.float32)
        for vector in (normal(layout.size), half, np.ones_like(half), np.zeros_like(half)):
            compressor = Zstandard(of)
            data = compressor.encode(vector, layout, generator())
            compressor.decode(data, layout)
