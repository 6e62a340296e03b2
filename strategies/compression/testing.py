"""The contract of compressors as tests, for packages with compressors of their own.

    class TestMine(CompressorContract):
        compressors = (Mine(), Mine(levels=7))

in a pytest file is all you need. The tests need pytest and the installed package, no network, no
torch and no files.
"""

import itertools
import math
import pickle
import struct
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import ClassVar

import numpy as np
import pytest

from .compressor import Compressor
from .decoded_update import DecodeError, SparseUpdate, Update, Vector
from .vector_layout import Layout

LAYOUT = Layout(("weight", "bias", "empty", "scale"), ((9, 13), (13,), (0, 4), ()))
SMALL_LAYOUTS = (
    LAYOUT,
    Layout(("one",), ((1,),)),
    Layout(("kernel", "bias"), ((6, 3, 2, 2), (6,))),
)
OTHER_LAYOUTS = tuple(Layout(("array",), ((size,),)) for size in (1, 130, 132, 400))
# 141,000 entries: heads hardly count.
LARGE = Layout(("weight", "bias", "scale"), ((350, 400), (999,), ()))
MODEL_BYTES, MOST_MODELS = 4 * LARGE.size, 20
# By what share the bytes of entries of a normal distribution may differ from `expected_bits`.
TOLERANCE = 0.02
# Seeds over which errors are averaged, and what rounding adds to a bound.
SEEDS, SLACK = 50, 1.05
# Zeros, the smallest number of float32, and the largest that the server accepts in an update.
EDGES = np.array([0.0, -0.0, 1.4e-45, -1.4e-45, 1e-40, 2.0**64, -(2.0**64)], np.float32)
# NaN, infinity and the largest number, of float32 and of float16.
BAD_NUMBERS = [np.array(n, "<f4").tobytes() for n in (np.nan, -np.inf, np.finfo(np.float32).max)]
BAD_NUMBERS += [np.array(n, "<f2").tobytes() for n in (np.nan, np.inf)]
# Written over bytes that a decoder may read as a number of entries.
EDGE_NUMBERS = [0, 1, 2, 7, 8, 9, 63, 64, 140, 141, 142, 2**16, 2**31 - 1, 2**31, 2**32 - 1]


class CompressorContract:
    """Tests of every promise that the strategies rely on, to be subclassed.

    They run over several layouts, with vectors as training makes them and others.

    Attributes:
        compressors: What is tested, at least one.
        fixed_point: Whether encoding a decoded update gives an equal update.
        deterministic: Whether the bytes are the same for every seed.
        mutations: How many damaged payloads are decoded.
    """

    compressors: ClassVar[Sequence[Compressor]] = ()
    fixed_point: ClassVar[bool] = True
    deterministic: ClassVar[bool] = True
    mutations: ClassVar[int] = 400

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Give each test that takes a ``compressor`` every one."""
        if "compressor" in metafunc.fixturenames:
            if not self.compressors:
                raise TypeError(f"{type(self).__name__}: set `compressors`")
            metafunc.parametrize("compressor", self.compressors, ids=str)

    def vectors(self, layout: Layout) -> dict[str, Vector]:
        """Return vectors as training and aggregation make them, and others, read-only."""
        rng, size = _rng(5), layout.size
        normal = rng.standard_normal(size, dtype=np.float32)
        made = {
            "normal": normal,
            "mostly zero": np.where(rng.random(size) < 0.02, normal, np.float32(0)),
            "zero": np.zeros(size, np.float32),
            "equal": np.full(size, -0.25, np.float32),
            "integers": rng.integers(-2, 3, size).astype(np.float32),
            "edges": rng.choice(EDGES, size),
        }
        for vector in made.values():
            vector.setflags(write=False)
        return made

    def cases(self) -> Iterator[tuple[str, Layout, Vector]]:
        """Yield the vectors of all small layouts with their names."""
        for layout in SMALL_LAYOUTS:
            for name, vector in self.vectors(layout).items():
                yield name, layout, vector

    def damage(self, compressor: Compressor, count: int) -> int:
        """Decode so many damaged payloads; return how many of them were updates all the same.

        Fails if one raises anything but a `DecodeError`, or decodes to something that is no update.
        """
        decoded = 0
        for layout in SMALL_LAYOUTS:
            vectors = self.vectors(layout).values()
            payloads = [compressor.encode(vector, layout, _rng()) for vector in vectors]
            for data in mutants(payloads, -(-count // len(SMALL_LAYOUTS))):
                try:
                    decoded += _decodes(compressor, data, layout)
                except Exception as error:
                    pytest.fail(f"{error!r} from {data.hex()} for {layout.shapes}")
        return decoded

    def test_round_trip_gives_a_finite_update_of_the_layouts_size(
        self, compressor: Compressor
    ) -> None:
        """The same bytes decode to the same update, whose memory is its own, every time.

        If it is a fixed point, encoding it again gives bytes that decode to an equal update.
        """
        for name, layout, vector in self.cases():
            data = compressor.encode(vector, layout, _rng())
            assert type(data) is bytes, f"encode returned {type(data)}"
            update = compressor.decode(data, layout)
            check_update(update, layout.size)
            before = _bits(update)
            assert _bits(compressor.decode(data, layout)) == before, f"{name}: not a function"
            update.to_dense()[:] = 7
            assert _bits(update) == before, "to_dense returned the update's own memory"
            if self.fixed_point:
                encoded = compressor.encode(update.to_dense(), layout, _rng())
                after = _bits(compressor.decode(encoded, layout))
                assert after == before, f"{name}: not a fixed point"
                assert encoded == data or not self.deterministic, f"{name}: other bytes"

    def test_encoded_size_is_that_of_the_formula(self, compressor: Compressor) -> None:
        """`expected_bits`, from which bits are counted and replies are bounded."""
        data = compressor.encode(self.vectors(LARGE)["normal"], LARGE, _rng())
        found, expected = 8 * len(data), compressor.expected_bits(LARGE)
        about = f"{found} bits, {expected} expected"
        assert abs(found - expected) <= TOLERANCE * expected, about

    def test_error_is_within_the_stated_bound(self, compressor: Compressor) -> None:
        """`error_bound`, over `SEEDS` seeds; without one, less than the vector is left out.

        Error feedback takes a compressor without a stated bound, and diverges if what it leaves out
        is more than its input, as that of random entries divided by their share.
        """
        bound = compressor.error_bound(LAYOUT.size)
        most = 1.0 if bound is None else SLACK * bound
        for name in ("normal", "mostly zero", "equal"):
            vector = self.vectors(LAYOUT)[name]
            errors = [
                np.square(self._sent(compressor, vector, seed) - vector, dtype=float).sum()
                for seed in range(SEEDS)
            ]
            least = np.mean(errors) - 4 * np.std(errors) / math.sqrt(SEEDS)
            share = least / np.square(vector, dtype=float).sum()
            about = f"{name}: the squared error is {share:.3g} of the squared norm"
            assert share <= most, f"{about}; error_bound says {bound}"

    def _sent(self, compressor: Compressor, vector: Vector, seed: int) -> Vector:
        data = compressor.encode(vector, LAYOUT, _rng(seed))
        return compressor.decode(data, LAYOUT).to_dense()

    def test_bytes_depend_on_vector_layout_and_seed_only(self, compressor: Compressor) -> None:
        """Not on what was encoded or decoded before; the vector is read, writable or not."""
        busy = pickle.loads(pickle.dumps(compressor))  # noqa: S301
        for name, layout, vector in self.cases():
            data, given = compressor.encode(vector, layout, _rng(7)), vector.copy()
            expected = _bits(compressor.decode(data, layout))
            seed = 8 if self.deterministic else 7
            busy.encode(self.vectors(LAYOUT)["normal"], LAYOUT, _rng())
            for coder in (compressor, busy, busy):
                assert coder.encode(given, layout, _rng(seed)) == data, f"{name}: the bytes differ"
                assert given.tobytes() == vector.tobytes(), f"{name}: the vector is changed"
                assert _bits(coder.decode(data, layout)) == expected, f"{name}: the updates differ"

    def test_truncated_and_extended_bytes_are_rejected(self, compressor: Compressor) -> None:
        """Every byte that is counted is one that is needed."""
        for name, layout, vector in self.cases():
            data = compressor.encode(vector, layout, _rng())
            bad = [data[:length] for length in range(len(data))]
            bad += [data + b"\0", data + b"\xff", data + bytes(100), data + (data or b"\0")]
            for damaged in bad:
                about = f"{name}: {len(damaged)} bytes instead of {len(data)} decode"
                assert not _decodes(compressor, damaged, layout), about

    def test_damaged_bytes_are_rejected_or_decode_to_a_valid_update(
        self, compressor: Compressor
    ) -> None:
        """Also those of another model. Set `mutations` higher for a slow test."""
        self.damage(compressor, self.mutations)
        data = compressor.encode(self.vectors(LAYOUT)["normal"], LAYOUT, _rng())
        for other in OTHER_LAYOUTS:
            _decodes(compressor, data, other)

    def test_nan_and_infinity_never_come_out(self, compressor: Compressor) -> None:
        """Nor does what overflows: such numbers are at every place, and from there to the end."""
        for layout in SMALL_LAYOUTS:
            data = compressor.encode(self.vectors(layout)["normal"], layout, _rng())
            for start, bad in itertools.product(range(len(data)), BAD_NUMBERS):
                for middle in (bad, bad * (len(data) // len(bad) + 1)):
                    damaged = data[:start] + middle + data[start + len(middle) :]
                    _decodes(compressor, damaged[: len(data)], layout)

    def test_cost_of_decoding_is_bounded_by_the_model(self, compressor: Compressor) -> None:
        """Any four bytes may be a count: in short messages, and in those far too long."""
        full = compressor.encode(self.vectors(LARGE)["normal"], LARGE, _rng())
        lengths = (min(64, len(full) - 1), len(full), MODEL_BYTES, 8 * MODEL_BYTES)
        numbers = (1, LARGE.size, 2**16, 2**24, 2**31, 2**32 - 1)
        for length, fill in itertools.product(lengths, (b"\0", b"\xff", b"\xaa")):
            short = length == lengths[0]
            offsets = range(min(13, length - 3)) if short else (0, 1, 5)
            for number, offset in itertools.product(numbers, offsets):
                data = bytearray((full[:16] + fill * length)[:length])
                struct.pack_into("<I", data, offset, number)
                seconds, peak, rejected = cost(
                    lambda given: compressor.decode(given, LARGE), bytes(data)
                )
                about = f"{length} bytes, filled with {fill!r}, {number} at byte {offset}"
                assert not short or rejected, f"{about} decode"
                most = MODEL_BYTES if short else MOST_MODELS * MODEL_BYTES
                assert peak < most, f"{about}: allocates {peak} bytes"
                assert seconds < 1, f"{about}: takes {seconds} seconds"


def mutants(payloads: Sequence[bytes], count: int, seed: int = 3) -> Iterator[bytes]:
    """Yield so many damaged copies of valid payloads."""
    draw = Random(seed)  # noqa: S311 - faster than NumPy's, one by one
    for _ in range(count):
        data = bytearray(draw.choice(payloads))
        for _ in range(draw.randint(1, 3)):
            start = draw.randrange(draw.choice([14, len(data) + 1]))  # half of them in the head
            number = draw.choice(EDGE_NUMBERS).to_bytes(4, "little")
            noise = draw.randbytes(draw.randrange(9))
            piece = draw.choice([b"", number, number[:1], noise, draw.choice(payloads)[start:]])
            end = draw.choice([start, start + len(piece), start + len(piece), len(data)])
            data[start:end] = piece
        yield bytes(data)


def check_update(update: Update, size: int) -> None:
    """Assert what holds for every decoded update of a vector of ``size`` entries."""
    assert isinstance(update, Update), f"{type(update)} is not an Update"
    values = update.to_dense()
    assert update.size == size, f"the update has {update.size} entries, not {size}"
    assert values.dtype == np.float32, f"the dense update is {values.dtype}, not float32"
    assert values.shape == (size,), f"the dense update has the shape {values.shape}"
    assert np.isfinite(values).all(), "the update has a value that is NaN or infinite"
    added = update.added_to(np.zeros(size, np.float32))
    assert np.array_equal(added, values), "add_to adds another change than to_dense returns"
    assert update.max_abs() == np.abs(values).max(initial=0), "max_abs is not the largest magnitude"
    if isinstance(update, SparseUpdate):
        positions = update.positions
        assert (np.diff(positions, prepend=-1) > 0).all(), "the positions do not rise from 0"
        assert np.count_nonzero(values) == len(positions) == len(update.values), "a value is zero"


def cost(decode: Callable[[bytes], object], data: bytes) -> tuple[float, int, DecodeError | None]:
    """Return (CPU seconds, peak of the bytes that Python allocated, the `DecodeError` or None)."""
    rejected = None
    tracemalloc.start()
    seconds = time.process_time()
    try:
        with np.errstate(all="ignore"):
            decode(data)
    except DecodeError as error:
        rejected = error
    finally:
        seconds = time.process_time() - seconds
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return seconds, peak, rejected


def _decodes(compressor: Compressor, data: bytes, layout: Layout) -> bool:
    """Return whether the bytes decode, to a valid update; they may be rejected."""
    try:
        with np.errstate(all="ignore"):
            update = compressor.decode(data, layout)
    except DecodeError:
        return False
    check_update(update, layout.size)
    return True


def _rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def _bits(update: Update) -> bytes:
    return update.to_dense().tobytes()
