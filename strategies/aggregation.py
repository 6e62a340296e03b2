"""Weighted means and steps of the model: pure functions on NumPy arrays, no Flower import."""

import math
from collections.abc import Collection, Mapping
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Arrays = dict[str, NDArray[np.generic]]
Entry = TypeVar("Entry")


def without(arrays: Mapping[str, Entry], buffers: Collection[str]) -> dict[str, Entry]:
    """Return the arrays that are no buffers, that is those that are trained, in their order."""
    return {name: array for name, array in arrays.items() if name not in buffers}


class WeightedMean:
    """The running mean sum_k n_k w_k / sum_k n_k of named arrays.

    McMahan et al. 2017, arXiv 1602.05629v4, Algorithm 1 (whose footnote 4 corrects earlier versions
    that divided by the examples of all clients instead of the round's). Sums run in the order of
    `add`, in float64; the result has the dtypes of the first arrays added.
    """

    def __init__(self) -> None:
        self._sums: dict[str, NDArray[Any]] = {}
        self._dtypes: dict[str, np.dtype[np.generic]] = {}
        self._total_weight = 0.0

    def add(self, arrays: Mapping[str, NDArray[np.generic]], weight: float) -> None:
        """Add one client's arrays, with the same names and shapes every time."""
        if not self._sums:
            self._sums = {
                name: np.zeros(array.shape, _wide(array.dtype)) for name, array in arrays.items()
            }
            self._dtypes = {name: array.dtype for name, array in arrays.items()}
        with np.errstate(over="ignore", invalid="ignore"):  # a model that is not finite is refused
            for name, total in self._sums.items():
                total += np.multiply(arrays[name], weight, dtype=total.dtype)
        self._total_weight += weight

    def result(self) -> Arrays:
        """Return the mean of what was added, as new arrays."""
        return {
            name: cast_like(total / self._total_weight, self._dtypes[name])
            for name, total in self._sums.items()
        }


class BufferMean:
    """The clients' weighted mean of buffers, such as batch normalisation's statistics.

    A buffer that every client returns as it was sent stays as it was, bit for bit: the mean in
    float64 would change an int64 above 2^53.

    Args:
        sent: The buffers that clients were sent.
    """

    def __init__(self, sent: Arrays) -> None:
        self._mean, self._sent = WeightedMean(), sent
        self._changed: set[str] = set()

    def add(self, arrays: Arrays, weight: float) -> None:
        """Add the buffers that are among a client's arrays."""
        buffers = {name: arrays[name] for name in self._sent}
        self._changed |= {
            name for name, sent in self._sent.items() if buffers[name].tobytes() != sent.tobytes()
        }
        self._mean.add(buffers, weight)

    def result(self) -> Arrays:
        """Return the mean; nothing where there are no buffers."""
        means = self._mean.result()
        return {
            name: means[name] if name in self._changed else sent
            for name, sent in self._sent.items()
        }


def moved(
    arrays: Mapping[str, NDArray[np.generic]], changes: Mapping[str, NDArray[np.float64]]
) -> Arrays:
    """Return the arrays plus their changes, computed in float64, in the dtypes of ``arrays``."""
    return {
        name: cast_like(np.add(array, changes[name], dtype=np.float64), array.dtype)
        for name, array in arrays.items()
    }


def finite_or_sent(values: NDArray[np.generic], sent: NDArray[np.generic]) -> bool:
    """Return whether all values are finite, except for those sent, such as a mask's."""
    finite = np.isfinite(values)
    return bool(finite.all()) or np.array_equal(values[~finite], sent[~finite], equal_nan=True)


def cast_like(array: NDArray[np.generic], dtype: np.dtype[np.generic]) -> NDArray[np.generic]:
    """Return the array in another dtype; values are rounded for integers and booleans."""
    rounded = np.rint(array) if dtype.kind in "iub" else array
    return np.asarray(rounded).astype(dtype)  # NumPy turns arrays of no dimension into scalars


def l2_norm(
    arrays: Mapping[str, NDArray[np.generic]],
    origin: Mapping[str, NDArray[np.generic]] | None = None,
) -> float:
    """Return the L2 norm of all arrays together, or of their difference from those in ``origin``.

    Computed in float64; infinity on overflow. Equal entries differ by 0, infinite ones included.
    Arrays of integers and booleans, such as batch normalisation's counter of batches, do not count.
    """
    origin = origin or {}
    counted = {name: array for name, array in arrays.items() if array.dtype.kind not in "iub"}
    with np.errstate(over="ignore", invalid="ignore"):
        differences = (_difference(array, origin.get(name)) for name, array in counted.items())
        return math.hypot(*(float(np.linalg.norm(difference)) for difference in differences))


def _difference(
    array: NDArray[np.generic], origin: NDArray[np.generic] | None
) -> NDArray[np.generic]:
    wide = array.astype(_wide(array.dtype), copy=False)
    if origin is None:
        return wide
    difference = np.asarray(np.subtract(wide, origin))
    if not np.isfinite(difference).all():
        difference[(array == origin) | ((array != array) & (origin != origin))] = 0
    return difference


def _wide(dtype: np.dtype[np.generic]) -> np.dtype[np.generic]:
    """Return the dtype to compute in: float64, or complex128 for complex numbers."""
    return np.result_type(dtype, np.float64)
