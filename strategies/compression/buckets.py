"""A vector's entries in buckets of d, and a norm of each bucket."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from strategies.compression.decoded_update import DecodeError, Vector

NORMS = ("l2", "max")
CHUNK = 2**15  # entries
FLOAT32_MAX = np.finfo(np.float32).max


def number_of(size: int, bucket: int) -> int:
    """Return how many buckets of ``bucket`` entries there are; the last may have fewer."""
    return -(-size // bucket)


def rows_of(entries: Vector | NDArray[np.uint8], bucket: int) -> Vector:
    """Return a new row of float32 for each bucket, the last one filled with zeros."""
    width = min(bucket, max(len(entries), 1))
    rows = np.zeros((number_of(len(entries), bucket), width), np.float32)
    rows.reshape(-1)[: len(entries)] = entries
    return rows


def chunks_of(vector: Vector, bucket: int) -> Iterator[Vector]:
    """Yield the `rows_of` some buckets at a time, which stay in the cache."""
    step = max(CHUNK // bucket, 1) * bucket
    for start in range(0, len(vector), step):
        yield rows_of(vector[start : start + step], bucket)


def norms_of(rows: Vector, norm: str) -> Vector:
    """Return each row's norm of `NORMS`, float32, rounded up: no entry is larger."""
    if norm == "max":
        largest: Vector = np.abs(rows).max(axis=1)
        return largest
    exact = np.sqrt(np.square(rows, dtype=np.float64).sum(axis=1)).clip(max=FLOAT32_MAX)
    with np.errstate(under="ignore"):
        above: Vector = np.nextafter(exact.astype(np.float32), FLOAT32_MAX)
    return above


def read_norms(data: bytes, size: int, bucket: int) -> tuple[Vector, bytes]:
    """Return the norms with which the bytes begin, float32 each, and what follows them.

    Raises:
        DecodeError: One is missing, negative, NaN or infinite.
    """
    end = 4 * number_of(size, bucket)
    if len(data) < end:
        raise DecodeError(f"{len(data)} bytes, the norms alone take {end}")
    norms = np.frombuffer(data[:end], "<f4").astype(np.float32)
    if not (np.isfinite(norms).all() and (norms >= 0).all()):
        raise DecodeError("a norm is negative, NaN or infinite")
    return norms, data[end:]
