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


class NotAnUpdate(Float32):
    def decode(self, data, layout):
        return np.zeros(layout.size, np.float32)


class OfFloat64(Float32):
    def decode(self, data, layout):
        return DenseUpdate(super().decode(data, layout).values.astype(np.float64))


class OneEntryMore(Float32):
    def decode(self, data, layout):
        return DenseUpdate(np.append(super().decode(data, layout).values, np.float32(0)))


class ByteArray(Float32):
    def encode(self, vector, layout, rng):
        return bytearray(super().encode(vector, layout, rng))


class Truncating(Float32):
    """Half of the error each time: not a fixed point."""

    def encode(self, vector, layout, rng):
        return super().encode(vector * np.float32(0.5), layout, rng)


class WrongFormula(Float32):
    def expected_bits(self, layout):
        return 31.0 * layout.size


class OwnRandomNumbers(Float32):
    def encode(self, vector, layout, rng):
        noise = np.random.default_rng().standard_normal(len(vector), dtype=np.float32)
        return super().encode(vector + noise, layout, rng)


class OfSeed(Float32):
    def encode(self, vector, layout, rng):
        noise = rng.standard_normal(len(vector), dtype=np.float32)
        return super().encode(vector + noise, layout, rng)


class WithState(Float32):
    def encode(self, vector, layout, rng):
        before = getattr(self, "last", np.zeros(1, np.float32))
        object.__setattr__(self, "last", vector[:1].copy())
        return super().encode(vector + before[0], layout, rng)


class InPlace(Float32):
    def encode(self, vector, layout, rng):
        if vector.flags.writeable:
            vector *= 2
        return super().encode(vector, layout, rng)


class NeedsWritable(Float32):
    def encode(self, vector, layout, rng):
        vector += 0
        return super().encode(vector, layout, rng)


class OwnMemory(Float32):
    def decode(self, data, layout):
        return View(super().decode(data, layout).values)


class IgnoresWhatFollows(Float32):
    def decode(self, data, layout):
        return super().decode(data[: 4 * layout.size], layout)


class FillsUp(Float32):
    def decode(self, data, layout):
        return super().decode(data.ljust(4 * layout.size, b"\0"), layout)


class RaisesAnything(Float32):
    def decode(self, data, layout):
        return DenseUpdate(np.array(struct.unpack(f"<{layout.size}f", data), np.float32))


class LetsNaNThrough(Float32):
    def decode(self, data, layout):
        if len(data) != 4 * layout.size:
            raise DecodeError("length")
        return DenseUpdate(np.frombuffer(data, "<f4").astype(np.float32))


class PositionsAsTheyCome(Float32):
    def decode(self, data, layout):
        values = super().decode(data, layout).values
        return SparseUpdate(layout.size, np.arange(len(values))[::-1], values)


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


class Greedy(Float32):
    def decode(self, data, layout):
        np.zeros((8, max(len(data), layout.size)))
        return super().decode(data, layout)


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
        (LetsNaNThrough, "test_nan_and_infinity_never_come_out", AssertionError, "NaN or inf"),
        (RaisesAnything, COST, struct.error, "requires"),
        (BelievesCounts, COST, AssertionError, "64 bytes, .* at byte .* allocates"),
        (Greedy, COST, AssertionError, "allocates"),
    ],
)
def test_broken_promise_is_found(broken, name, error, reason):
    with pytest.raises(error, match=reason):
        check(name, broken())


class ProductThatOverflows(Float32):
    """Entries as they are, each times the first."""

    def decode(self, data, layout):
        values = super().decode(data, layout).values
        return DenseUpdate(values * values[:1])


def test_product_that_overflows_is_found():
    with pytest.raises(AssertionError, match="NaN or infinite"):
        check("test_nan_and_infinity_never_come_out", ProductThatOverflows())


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
    class Above(Float32):
        def expected_bits(self, layout):
            return 40.0 * layout.size

    name = "test_encoded_size_is_that_of_the_formula"
    check(name, Above(), at_most=True)
    with pytest.raises(AssertionError):
        check(name, Above())
    with pytest.raises(AssertionError):
        check(name, WrongFormula(), at_most=True)


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
