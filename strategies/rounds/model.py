"""The model that strategies see: the trained arrays as one vector, and buffers beside it.

It is made when messages are read, and turned into records when they are written. In between there
is only arithmetic on vectors.
"""

from collections.abc import Collection
from functools import cached_property
from typing import Any

import numpy as np
from flwr.app import ArrayRecord
from numpy.typing import NDArray

from ..compression.vector_layout import Layout
from .flower_arrays import from_record, to_record

Array = NDArray[Any]
Arrays = dict[str, Array]
# float32, or float64 if the model has arrays of float64.
Vector = NDArray[Any]

# Arrays of batch normalisation in PyTorch, which no gradient changes.
STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


class Model:
    """The arrays of a model that are sent. Its vector, or its record, is made on access.

    Args:
        layout: Names, shapes and dtypes of the trained arrays.
        vector: Their values, (n,), in ``layout.dtype``.
        buffers: The arrays that are sent uncompressed, by name.
        order: The names of all arrays, in the model's order.
    """

    def __init__(
        self, layout: Layout, vector: Vector, buffers: Arrays, order: tuple[str, ...]
    ) -> None:
        self.layout, self.buffers, self.order = layout, buffers, order
        self.vector = vector

    @classmethod
    def read(cls, record: ArrayRecord, buffers: Collection[str] = ()) -> "Model":
        """Return the model that the record holds.

        Args:
            record: All arrays.
            buffers: The names of the buffers.

        Raises:
            ValueError: A trained array is not of real floating-point numbers, or there is none; or
                as for `from_array`.
        """
        arrays = from_record(record)
        trained = {name: array for name, array in arrays.items() if name not in buffers}
        if arrays and not trained:
            raise ValueError("the model has no arrays of real floating-point numbers to train")
        own = {name: array for name, array in arrays.items() if name in buffers}
        model = cls.__new__(cls)
        model.layout, model.buffers, model.order = Layout.of(trained), own, tuple(arrays)
        model.record = record
        return model

    @cached_property
    def vector(self) -> Vector:
        """The trained arrays, (n,), in ``layout.dtype``."""
        return self.layout.flatten(from_record(self.record))

    @cached_property
    def record(self) -> ArrayRecord:
        """All arrays, in the model's order."""
        arrays = {**self.layout.unflatten(self.vector), **self.buffers}
        return to_record({name: arrays[name] for name in self.order})

    @property
    def size(self) -> int:
        """Number of entries of all arrays."""
        return self.layout.size + self.buffer_size

    @property
    def buffer_size(self) -> int:
        """Number of entries of the buffers."""
        return sum(array.size for array in self.buffers.values())


def usual_buffers(record: ArrayRecord) -> tuple[str, ...]:
    """Return the names of arrays that are not weights, by their dtype or PyTorch's naming."""
    return tuple(
        name
        for name, array in record.items()
        if np.dtype(array.dtype).kind != "f" or name.rpartition(".")[2] in STATISTICS
    )


def change_norm(values: Array, origin: Array | None = None) -> float:
    """Return the L2 norm of the values, or of their difference from ``origin``.

    Computed in float64; infinity on overflow. Equal entries differ by 0, infinite ones included.
    """
    with np.errstate(over="ignore"):
        change = values.astype(np.result_type(values, np.float64))
        return float(np.linalg.norm(change if origin is None else difference(change, origin)))


def difference(values: Array, origin: Array, dtype: type | None = None) -> Array:
    """Return ``values - origin``; equal entries, such as a mask's infinity, differ by 0."""
    with np.errstate(over="ignore", invalid="ignore"):
        change: Array = np.subtract(values, origin, dtype=dtype)
    if not np.isfinite(change).all():
        change[(values == origin) | ((values != values) & (origin != origin))] = 0
    return change
