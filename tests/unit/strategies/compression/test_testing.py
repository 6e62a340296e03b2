"""The contract's tests: each finds the compressor that breaks its promise."""

import struct
import tracemalloc
from dataclasses import dataclass

import numpy as np
import pytest

from strategies.compression import testing
from strategies.compression.decoded_update import DecodeError, DenseUpdate, SparseUpdate
from strategies.compression.float32 import Float32
from strategies.compression.hostile_bytes import cost
from strategies.compression.sparse import Sparse
from strategies.compression.testing import CompressorContract

Failed = pytest.fail.Exception


class View(DenseUpdate):
    def to_dense(self):
        return self.values


def encoding(change):
    """Return Float32 that encodes what ``change`` makes of the vector and the random numbers."""

    def encode(self, vector, layout, rng):
        return Float32.encode(self, change(vector, rng), layout, rng)

    return type("Changed", (Float32,), {"encode": encode})


def decoding(decode):
    """Return Float32 with another `decode` of (bytes, layout)."""
    return type("Changed", (Float32,), {"decode": lambda self, data, layout: decode(data, layout)})


def values(data, layout):
    return Float32().decode(data, layout).values


def unchecked(data, layout):
    if len(data) != 4 * layout.size:
        raise DecodeError("length")
    return DenseUpdate(np.frombuffer(data, "<f4").astype(np.float32))


def in_place(vector, rng):
    if vector.flags.writeable:
        vector *= 2
    return vector


def needs_writable(vector, rng):
    vector += 0
    return vector


def greedy(data, layout):
    np.zeros((8, max(len(data), layout.size)))
    return Float32().decode(data, layout)


def noise(vector, rng):
    return vector + rng.standard_normal(len(vector), dtype=np.float32)


class ByteArray(Float32):
    def encode(self, vector, layout, rng):
        return bytearray(super().encode(vector, layout, rng))


class WrongFormula(Float32):
    def expected_bits(self, layout):
        return 31.0 * layout.size


class WithState(Float32):
    def encode(self, vector, layout, rng):
        before = getattr(self, "last", np.zeros(1, np.float32))
        object.__setattr__(self, "last", vector[:1].copy())
        return super().encode(vector + before[0], layout, rng)


NotAnUpdate = decoding(lambda data, layout: np.zeros(layout.size, np.float32))
OfFloat64 = decoding(lambda data, layout: DenseUpdate(values(data, layout).astype(np.float64)))
OneEntryMore = decoding(
    lambda data, layout: DenseUpdate(np.append(values(data, layout), np.float32(0)))
)
PositionsAsTheyCome = decoding(
    lambda data, layout: SparseUpdate(
        layout.size, np.arange(layout.size)[::-1], values(data, layout)
    )
)
OwnMemory = decoding(lambda data, layout: View(values(data, layout)))
IgnoresWhatFollows = decoding(
    lambda data, layout: Float32().decode(data[: 4 * layout.size], layout)
)
FillsUp = decoding(
    lambda data, layout: Float32().decode(data.ljust(4 * layout.size, b"\0"), layout)
)
RaisesAnything = decoding(
    lambda data, layout: DenseUpdate(np.array(struct.unpack(f"<{layout.size}f", data), np.float32))
)
ProductThatOverflows = decoding(
    lambda data, layout: DenseUpdate(values(data, layout) * values(data, layout)[:1])
)
LetsNaNThrough, Greedy = decoding(unchecked), decoding(greedy)
Truncating = encoding(lambda vector, rng: vector * np.float32(0.5))  # not a fixed point
OwnRandomNumbers = encoding(lambda vector, rng: noise(vector, np.random.default_rng()))
OfSeed, InPlace, NeedsWritable = encoding(noise), encoding(in_place), encoding(needs_writable)


@dataclass(frozen=True)
class BelievesCounts(Float32):
    """k, 4 bytes, then the entries."""

    def encode(self, vector, layout, rng):
        return struct.pack("<I", len(vector)) + super().encode(vector, layout, rng)

    def decode(self, data, layout):
        if len(data) < 4:
            raise DecodeError("length")
        (count,) = struct.unpack_from("<I", data)
        values = np.zeros(min(count, 2**24), np.float32)
        values[: layout.size] = 1
        return super().decode(data[4:], layout)


NOT_FINITE = "test_nan_and_infinity_never_come_out"
FIXED_POINT = "test_encoding_a_decoded_update_gives_an_equal_update"
ROUND_TRIP = "test_round_trip_gives_a_finite_update_of_the_layouts_size"
DAMAGED = "test_damaged_bytes_are_rejected_or_decode_to_a_valid_update"
TRUNCATED = "test_truncated_and_extended_bytes_are_rejected"
COST = "test_cost_of_decoding_is_bounded_by_the_model"


def check(name, compressor, **settings):
    contract = type("Contract", (CompressorContract,), settings)()
    getattr(contract, name)(compressor)


@pytest.mark.parametrize(
    ("broken", "name", "error", "reason"),
    [
        (NotAnUpdate, ROUND_TRIP, AssertionError, "is not an Update"),
        (OfFloat64, ROUND_TRIP, AssertionError, "is float64"),
        (OneEntryMore, ROUND_TRIP, AssertionError, "entries, not"),
        (ByteArray, ROUND_TRIP, AssertionError, "encode returned .*bytearray"),
        (PositionsAsTheyCome, ROUND_TRIP, AssertionError, "the positions do not rise"),
        (Truncating, FIXED_POINT, AssertionError, "normal"),
        (WrongFormula, "test_encoded_size_is_that_of_the_formula", AssertionError, "expected"),
        (OwnRandomNumbers, "test_same_seed_gives_the_same_bytes", AssertionError, "differ"),
        (OfSeed, "test_same_seed_gives_the_same_bytes", AssertionError, "differ"),
        (WithState, "test_compressor_has_no_state", AssertionError, "edges"),
        (
            InPlace,
            "test_same_seed_gives_the_same_bytes",
            AssertionError,
            "is changed",
        ),
        (NeedsWritable, "test_same_seed_gives_the_same_bytes", ValueError, "read-only"),
        (OwnMemory, ROUND_TRIP, AssertionError, "own memory"),
        (IgnoresWhatFollows, TRUNCATED, AssertionError, "bytes instead of"),
        (FillsUp, TRUNCATED, AssertionError, "bytes instead of"),
        (RaisesAnything, TRUNCATED, struct.error, "requires"),
        (RaisesAnything, DAMAGED, Failed, "unpack requires"),
        (
            ProductThatOverflows,
            "test_nan_and_infinity_never_come_out",
            AssertionError,
            "NaN or inf",
        ),
        (LetsNaNThrough, NOT_FINITE, AssertionError, "NaN or inf"),
        (RaisesAnything, COST, struct.error, "requires"),
        (BelievesCounts, COST, AssertionError, "64 bytes, .* at byte .* allocates"),
        (Greedy, COST, AssertionError, "allocates"),
    ],
)
def test_broken_promise_is_found(broken, name, error, reason):
    with pytest.raises(error, match=reason):
        check(name, broken())


def test_cost_ends_its_tracing_whatever_is_raised():
    with pytest.raises(struct.error):
        cost(lambda data: struct.unpack("<I", data), b"")
    assert not tracemalloc.is_tracing()


def test_settings_say_what_a_compressor_does_not_promise():
    check("test_same_seed_gives_the_same_bytes", OfSeed(), deterministic=False)
    check("test_encoded_size_is_that_of_the_formula", WrongFormula(), tolerance=0.04)
    with pytest.raises(pytest.skip.Exception):
        check(FIXED_POINT, Truncating(), fixed_point=False)


def test_formula_that_is_a_bound_may_be_far_above():
    above = type("Above", (Float32,), {"expected_bits": lambda self, layout: 40.0 * layout.size})
    name = "test_encoded_size_is_that_of_the_formula"
    check(name, above(), at_most=True)
    for broken, at_most in ((above, False), (WrongFormula, True)):
        with pytest.raises(AssertionError):
            check(name, broken(), at_most=at_most)


def test_scopes_are_tested_both():
    found = list(testing._in_all_scopes([Sparse(0.5, "model"), Float32()]))
    assert found == [Sparse(0.5, "tensor"), Sparse(0.5, "model"), Float32()]


def test_contract_without_compressors_is_an_error():
    class Metafunc:
        fixturenames = ("compressor",)

    with pytest.raises(TypeError, match="CompressorContract: set `compressors`"):
        CompressorContract().pytest_generate_tests(Metafunc())


def test_every_test_of_the_contract_is_broken_by_one_here():
    (parametrized,) = test_broken_promise_is_found.pytestmark
    names = {row[1] for row in parametrized.args[1]}
    own = {name for name in vars(CompressorContract) if name.startswith("test_")}
    assert own == names
