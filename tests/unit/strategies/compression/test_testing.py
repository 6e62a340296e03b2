"""The contract's tests: each finds the compressor that breaks its promise."""

import itertools
import struct
import tracemalloc

import numpy as np
import pytest

from strategies.compression.decoded_update import DecodeError, DenseUpdate, SparseUpdate
from strategies.compression.floats import Float32
from strategies.compression.testing import CompressorContract

ROUND_TRIP = "test_round_trip_gives_a_finite_update_of_the_layouts_size"
SIZE = "test_encoded_size_is_that_of_the_formula"
BYTES = "test_bytes_depend_on_vector_layout_and_seed_only"
TRUNCATED = "test_truncated_and_extended_bytes_are_rejected"
DAMAGED = "test_damaged_bytes_are_rejected_or_decode_to_a_valid_update"
NOT_FINITE = "test_nan_and_infinity_never_come_out"
COST = "test_cost_of_decoding_is_bounded_by_the_model"
NUMBERS = itertools.count()


class View(DenseUpdate):
    def to_dense(self):
        return self.values


def changed(**methods):
    """Return Float32 with other methods, as a class that can be pickled."""
    made = type(f"Changed{next(NUMBERS)}", (Float32,), {**methods, "__module__": __name__})
    globals()[made.__name__] = made
    return made


def encoding(change):
    """Return Float32 that encodes what ``change`` makes of the vector and the random numbers."""

    def encode(self, vector, layout, rng):
        return Float32.encode(self, change(vector, rng), layout, rng)

    return changed(encode=encode)


def decoding(decode):
    """Return Float32 with another `decode` of (bytes, layout)."""
    return changed(decode=lambda self, data, layout: decode(data, layout))


def formula(bits):
    return changed(expected_bits=lambda self, layout: bits * layout.size)


def values(data, layout):
    return Float32().decode(data, layout).values


def as_they_come(data, layout):
    return SparseUpdate(layout.size, np.arange(layout.size)[::-1], values(data, layout))


def unchecked(data, layout):
    if len(data) != 4 * layout.size:
        raise DecodeError("length")
    return DenseUpdate(np.frombuffer(data, "<f4").astype(np.float32))


def unpacked(data, layout):
    return DenseUpdate(np.array(struct.unpack(f"<{layout.size}f", data), np.float32))


def in_place(vector, rng):
    if vector.flags.writeable:
        vector *= 2
    return vector


def greedy(data, layout):
    np.zeros((8, max(len(data), layout.size)))
    return Float32().decode(data, layout)


def noise(vector, rng):
    return vector + rng.standard_normal(len(vector), dtype=np.float32)


class WithState(Float32):
    def encode(self, vector, layout, rng):
        before = getattr(self, "last", np.zeros(1, np.float32))
        object.__setattr__(self, "last", vector[:1].copy())
        return super().encode(vector + before[0], layout, rng)


Truncating = encoding(lambda vector, _: vector * np.float32(0.5))


def check(name, compressor, **settings):
    contract = type("Contract", (CompressorContract,), settings)()
    getattr(contract, name)(compressor())


@pytest.mark.parametrize(
    ("broken", "name", "error", "reason"),
    [
        (decoding(as_they_come), ROUND_TRIP, AssertionError, "the positions do not rise"),
        (decoding(lambda *given: View(values(*given))), ROUND_TRIP, AssertionError, "own memory"),
        (Truncating, ROUND_TRIP, AssertionError, "normal: not a fixed point"),
        (formula(31.0), SIZE, AssertionError, "expected"),
        (encoding(lambda *_: noise(_[0], np.random.default_rng())), BYTES, AssertionError, "bytes"),
        (WithState, BYTES, AssertionError, "the bytes differ"),
        (encoding(in_place), BYTES, AssertionError, "is changed|differ"),
        (
            decoding(lambda data, layout: unchecked(data[: 4 * layout.size], layout)),
            TRUNCATED, AssertionError, "bytes instead of",
        ),
        (decoding(unpacked), DAMAGED, pytest.fail.Exception, "unpack requires"),
        (decoding(unchecked), NOT_FINITE, AssertionError, "NaN or inf"),
        (decoding(greedy), COST, AssertionError, "allocates"),
    ],
)  # fmt: skip
def test_broken_promise_is_found(broken, name, error, reason):
    with pytest.raises(error, match=reason):
        check(name, broken)
    assert not tracemalloc.is_tracing()
