"""Weighted means, and checks of arrays: pure functions on NumPy arrays."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..compression.decoded_update import Update, add_weighted
from .model import Array, Arrays
from .reply_errors import SMALLER_RATES, ReplyError

# What is averaged over the clients.
Term = Array | Update


class WeightedMean:
    """The running mean sum_k n_k v_k / sum_k n_k of arrays.

    McMahan et al. 2017, arXiv 1602.05629v4, Algorithm 1 (whose footnote 4 corrects earlier versions
    that divided by the examples of all clients instead of the round's). Sums run in the order of
    `add`, in float64 (complex128 for complex numbers).
    """

    def __init__(self) -> None:
        self._total: NDArray[Any] | None = None
        self._weight = 0.0

    def add(self, term: Term, weight: float) -> None:
        """Add one client's term, of the same shape every time."""
        with np.errstate(over="ignore", invalid="ignore"):  # such a model is refused
            if isinstance(term, Update):
                if self._total is None:
                    self._total = np.zeros(term.size)
                term.add_to(self._total, weight)
            else:
                if self._total is None:
                    self._total = np.zeros(term.shape, np.result_type(term, np.float64))
                add_weighted(self._total.reshape(-1), term.reshape(-1), weight)
        self._weight += weight

    def result(self) -> NDArray[Any]:
        """Return the mean of what was added; nothing can be added afterwards."""
        total, self._total = self._total, None  # as large as two models, and no longer needed
        assert total is not None
        total /= self._weight
        return total


class BufferMean:
    """The clients' weighted mean of buffers, such as batch normalisation's statistics.

    A buffer that no client changed stays the same, bit for bit: the mean in float64 would change an
    int64 above 2^53.

    Args:
        sent: The buffers that clients were sent.
    """

    def __init__(self, sent: Arrays) -> None:
        self._sent = sent
        self._means = {name: WeightedMean() for name in sent}
        self._changed: set[str] = set()

    def add(self, buffers: Mapping[str, Array], weight: float) -> None:
        """Add a client's buffers."""
        for name, sent in self._sent.items():
            if buffers[name].tobytes() != sent.tobytes():
                self._changed.add(name)
            self._means[name].add(buffers[name], weight)

    def result(self) -> Arrays:
        """Return the means, in the dtypes of what was sent; ReplyError as for `check_next`."""
        means = dict(self._sent)
        for name in self._changed:
            mean, dtype = self._means[name].result(), self._sent[name].dtype
            with np.errstate(over="ignore", invalid="ignore"):
                rounded = np.rint(mean) if dtype.kind in "iub" else mean
                # NumPy turns arrays of no dimension into scalars.
                means[name] = np.asarray(rounded).astype(dtype)
        check_next(means, self._sent)
        return means


def finite_or_sent(values: Array, sent: Array | None = None) -> bool:
    """Return whether all values are finite, except values that were sent, such as a mask's."""
    finite = np.isfinite(values)
    if sent is None or finite.all():
        return bool(finite.all())
    return np.array_equal(values[~finite], sent[~finite], equal_nan=True)


def check_next(arrays: Arrays, sent: Arrays) -> None:
    """Check that the next model's arrays have only finite values, or values that were sent.

    Raises:
        ReplyError: One has others.
    """
    for name, array in arrays.items():
        if not finite_or_sent(array, sent[name]):
            reason = f"array {name!r} of the next model would have NaN or infinite values"
            raise ReplyError(f"{reason}; {SMALLER_RATES}")
