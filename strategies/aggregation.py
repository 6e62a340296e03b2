"""The arithmetic of averaging: pure functions on NumPy arrays, no Flower import."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

Arrays = dict[str, NDArray[np.generic]]


class RunningMean:
    """sum_k n_k * w_k / n, with n the sum of the n_k added so far (McMahan et al., Alg. 1).

    The sums run in the order of adding, in float64; the result has the dtypes of the first update.
    (The paper's footnote 4 corrects earlier versions that summed over all clients instead of the
    round's.)
    """

    def __init__(self) -> None:
        self._sums: dict[str, NDArray[np.float64]] = {}
        self._dtypes: dict[str, np.dtype[np.generic]] = {}
        self._total = 0.0

    def add(self, update: Mapping[str, NDArray[np.generic]], weight: float) -> None:
        """Add one client's arrays, the same names and shapes every time.

        Raises:
            ValueError: ``weight`` is not positive and finite.
        """
        if not (np.isfinite(weight) and weight > 0):
            raise ValueError(f"weights must be positive and finite, got {weight}")
        if not self._sums:
            self._sums = {name: np.zeros(array.shape) for name, array in update.items()}
            self._dtypes = {name: array.dtype for name, array in update.items()}
        for name, total in self._sums.items():
            total += np.multiply(update[name], weight, dtype=np.float64)
        self._total += weight

    def result(self) -> Arrays:
        """Return the mean, as new arrays.

        Raises:
            ValueError: Nothing was added.
        """
        if not self._sums:
            raise ValueError("no update and no weight: there is nothing to average")
        return {
            name: cast_like(total / self._total, self._dtypes[name])
            for name, total in self._sums.items()
        }


def weighted_mean(
    updates: Sequence[Mapping[str, NDArray[np.generic]]], weights: Sequence[float]
) -> Arrays:
    """Return sum_k n_k * w_k / n as `RunningMean` does.

    Args:
        updates: One mapping per client, array name to array; same names and shapes in all.
        weights: One positive weight per update, usually the number of local examples n_k.

    Raises:
        ValueError: No update, a different number of weights, or a weight that is not positive.
    """
    if len(updates) != len(weights):
        raise ValueError(f"need one weight per update, got {len(updates)} and {len(weights)}")
    mean = RunningMean()
    for update, weight in zip(updates, weights, strict=True):
        mean.add(update, weight)
    return mean.result()


def cast_like(array: NDArray[np.generic], dtype: np.dtype[np.generic]) -> NDArray[np.generic]:
    """Return the array in another dtype; numbers for an integer dtype are rounded, not cut off."""
    rounded = np.rint(array) if np.issubdtype(dtype, np.integer) else array
    return np.asarray(rounded).astype(dtype)  # NumPy turns arrays of no dimension into scalars


def l2_norm(
    arrays: Mapping[str, NDArray[np.generic]],
    origin: Mapping[str, NDArray[np.generic]] | None = None,
) -> float:
    """Return the L2 norm of all arrays together, less those of ``origin``, computed in float64.

    Infinity where float64 cannot hold it.
    """
    with np.errstate(over="ignore"):
        differences = (
            np.subtract(array, 0 if origin is None else origin[name], dtype=np.float64)
            for name, array in arrays.items()
        )
        return math.hypot(*(float(np.linalg.norm(difference)) for difference in differences))


def gradient_step(
    arrays: Mapping[str, NDArray[np.generic]],
    gradient: Mapping[str, NDArray[np.generic]],
    learning_rate: float,
) -> Arrays:
    """Return w - eta * g per array, computed in float64, in the dtypes of ``arrays``."""
    return {
        name: cast_like(
            array.astype(np.float64) - learning_rate * gradient[name].astype(np.float64),
            array.dtype,
        )
        for name, array in arrays.items()
    }
