"""A model's trained arrays as one flat vector, and back."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..registry import Scope

FLOAT32 = "float32"


@dataclass(frozen=True)
class Layout:
    """Names, shapes and dtypes of a model's arrays, in the order in which they are laid out.

    Attributes:
        names: The arrays' names.
        shapes: Their shapes.
        dtypes: The names of their dtypes; empty where all are float32.
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...] = ()

    @classmethod
    def of(cls, arrays: Mapping[str, NDArray[np.generic]]) -> "Layout":
        """Return the layout of the arrays.

        Raises:
            ValueError: One is not of real floating-point numbers of at most 64 bits.
        """
        for name, array in arrays.items():
            if array.dtype.kind != "f" or array.dtype.itemsize > np.dtype(float).itemsize:
                raise ValueError(
                    f"array {name!r} is {array.dtype}: give a model whose trained arrays are real "
                    "floating-point numbers of at most 64 bits"
                )
        dtypes = tuple(array.dtype.name for array in arrays.values())
        shapes = tuple(array.shape for array in arrays.values())
        return cls(tuple(arrays), shapes, dtypes if set(dtypes) - {FLOAT32} else ())

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """The vector's dtype: float64 where an array is, else float32."""
        return np.result_type(np.float32, *self.dtypes)

    @cached_property
    def all_dtypes(self) -> tuple[np.dtype[Any], ...]:
        """The dtype of each array."""
        return tuple(map(np.dtype, self.dtypes or (FLOAT32,) * len(self.names)))

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Number of entries of each array."""
        return tuple(math.prod(shape) for shape in self.shapes)

    @cached_property
    def size(self) -> int:
        """Number of entries of the flat vector."""
        return sum(self.sizes)

    def blocks(self, scope: Scope) -> tuple[int, ...]:
        """Return the sizes of what is compressed as one: every tensor, or the whole model."""
        return self.sizes if scope == "tensor" else (self.size,)

    def split(self, vector: NDArray[Any]) -> list[NDArray[Any]]:
        """Return the part of the vector that each array takes, as views."""
        ends = zip(accumulate(self.sizes), self.sizes, strict=True)
        return [vector[end - size : end] for end, size in ends]

    def flatten(self, arrays: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
        """Return the arrays, row by row and one after the other, as a new vector of `dtype`."""
        parts = [arrays[name].reshape(-1) for name in self.names]
        return np.concatenate(parts, dtype=self.dtype) if parts else np.empty(0, self.dtype)

    def unflatten(self, vector: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """Return the arrays in the vector, each in its dtype; as views where that is possible."""
        parts = zip(self.names, self.split(vector), self.shapes, self.all_dtypes, strict=True)
        return {
            name: part.reshape(shape).astype(dtype, copy=False)
            for name, part, shape, dtype in parts
        }

    def rounded(self, vector: NDArray[Any]) -> NDArray[Any]:
        """Return the vector in `dtype`, with values that the arrays' own dtypes can hold."""
        if set(self.dtypes) - {self.dtype.name}:
            return self.flatten(self.unflatten(vector))
        return vector.astype(self.dtype, copy=False)
