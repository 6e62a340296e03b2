"""The arithmetic of averaging: pure functions on NumPy arrays, no Flower import."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

Arrays = dict[str, NDArray[np.generic]]


def weighted_mean(
    updates: Sequence[Mapping[str, NDArray[np.generic]]], weights: Sequence[float]
) -> Arrays:
    """Return sum_k (n_k / n) * w_k, with n the sum of the weights given (McMahan et al., Alg. 1).

    The sum runs over the updates given, in their order, in float64; the result has the dtypes of
    the first update. (The paper's footnote 4 corrects earlier versions that summed over all
    clients instead of the round's.)

    Args:
        updates: One mapping per client, array name to array; same names and shapes in all.
        weights: One positive weight per update, usually the number of local examples n_k.

    Raises:
        ValueError: No update, a different number of weights, or a weight that is not positive.
    """
    if not updates or len(updates) != len(weights):
        raise ValueError(f"need one weight per update, got {len(updates)} and {len(weights)}")
    if not all(np.isfinite(weight) and weight > 0 for weight in weights):
        raise ValueError(f"weights must be positive and finite, got {list(weights)}")
    total = float(sum(weights))
    mean: Arrays = {}
    for name, first in updates[0].items():
        total_array = np.zeros(first.shape, dtype=np.float64)
        for update, weight in zip(updates, weights, strict=True):
            total_array += (weight / total) * update[name].astype(np.float64, copy=False)
        mean[name] = cast_like(total_array, first.dtype)
    return mean


def cast_like(array: NDArray[np.generic], dtype: np.dtype[np.generic]) -> NDArray[np.generic]:
    """Return the array in another dtype; numbers for an integer dtype are rounded, not cut off."""
    rounded = np.rint(array) if np.issubdtype(dtype, np.integer) else array
    return np.asarray(rounded).astype(dtype)  # NumPy turns arrays of no dimension into scalars


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
