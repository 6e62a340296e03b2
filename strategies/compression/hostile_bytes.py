"""Damaged copies of encoded updates, and what a decoder may make of them; for tests."""

import random
import struct
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import numpy as np

from strategies.compression.decoded_update import DecodeError, SparseUpdate, Update

Found = TypeVar("Found")

EDGE_NUMBERS = [0, 1, 2, 3, 7, 8, 15, 16, 17, 63, 64, 65, 140, 141, 142, 2**16]
EDGE_NUMBERS += [2**31 - 1, 2**31, 2**32 - 1]
# Wherever the head of a format has its integers.
ANY_FIELDS = tuple((offset, form) for offset in range(12) for form in "BI")


def mutants(
    rng: np.random.Generator,
    payloads: Sequence[bytes],
    count: int,
    fields: Sequence[tuple[int, str]] = (),
) -> Iterator[bytes]:
    """Yield damaged copies of the payloads.

    Args:
        rng: What to do, and where.
        payloads: Valid ones.
        count: How many to yield.
        fields: (offset, "B" or "I") of integers that are set to `EDGE_NUMBERS`.
    """
    draw = random.Random(int(rng.integers(2**63)))  # noqa: S311 - faster than NumPy's, one by one
    for _ in range(count):
        data = bytearray(draw.choice(payloads))
        for _ in range(draw.randint(1, 3)):
            kind, at = draw.randrange(6), draw.randrange(max(len(data), 1))
            if kind == 0 and data:  # one bit
                data[at] ^= 1 << draw.randrange(8)
            elif kind == 1:  # too short
                del data[at:]
            elif kind == 2:  # too long
                data += draw.randbytes(draw.randrange(40))
            elif kind == 3:  # the beginning of one, the end of another
                data[at:] = draw.choice(payloads)[draw.choice([at, draw.randrange(7)]) :]
            elif kind == 4:  # random bytes in the middle
                noise = draw.randbytes(draw.randrange(9))
                data[at : at + len(noise)] = noise[: len(data) - at]
            elif fields:  # an integer at an edge of its range
                offset, form = draw.choice(fields)
                number = draw.choice([draw.choice(EDGE_NUMBERS), draw.randrange(2**31)])
                if offset + struct.calcsize(form) <= len(data):
                    bits = 8 * struct.calcsize(form)
                    struct.pack_into("<" + form, data, offset, number % (1 << bits))
        yield bytes(data)


def check_update(update: Update, size: int) -> None:
    """Assert what holds for every decoded update of a vector of ``size`` entries."""
    assert isinstance(update, Update), f"{type(update)} is not an Update"
    values = update.to_dense()
    assert update.size == size, f"the update has {update.size} entries, not {size}"
    assert values.dtype == np.float32, f"the dense update is {values.dtype}, not float32"
    assert values.shape == (size,), f"the dense update has the shape {values.shape}"
    assert np.isfinite(values).all(), "the update has a value that is NaN or infinite"
    assert update.max_abs() == np.abs(values).max(initial=0), "max_abs is not the largest magnitude"
    if isinstance(update, SparseUpdate):
        positions = update.positions
        assert (np.diff(positions) > 0).all(), "the positions do not rise"
        within = not len(positions) or (positions[0] >= 0 and positions[-1] < size)
        assert within, "a position lies beyond the vector"
        assert np.count_nonzero(values) == len(positions) == len(update.values), "a value is zero"


def decode_or_reject(
    decode: Callable[[bytes], Found], check: Callable[[Found, bytes], None], data: bytes
) -> bool:
    """Return whether the data decodes; fail if it raises anything but a `DecodeError`."""
    try:
        found = decode(data)
    except DecodeError:
        return False
    check(found, data)
    return True


def cost(decode: Callable[[bytes], object], data: bytes) -> tuple[float, int, DecodeError | None]:
    """Return (CPU seconds, peak of the bytes that Python allocated, the `DecodeError` or None)."""
    rejected = None
    tracemalloc.start()
    seconds = time.process_time()
    try:
        decode(data)
    except DecodeError as error:
        rejected = error
    finally:
        seconds = time.process_time() - seconds
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return seconds, peak, rejected
