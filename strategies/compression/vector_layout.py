"""A model's arrays as one flat float32 vector, and back."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from strategies.compression.decoded_update import Vector
from strategies.registry import Scope


@dataclass(frozen=True)
class Layout:
    """Names and shapes of a model's arrays, in the order in which they are laid out."""

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, arrays: Mapping[str, NDArray[np.generic]]) -> "Layout":
        """Return the layout of the arrays; ValueError where one is not float32, as updates are."""
        for name, array in arrays.items():
            if array.dtype != np.float32:
                raise ValueError(
                    f"array {name!r} is {array.dtype}: updates are compressed as float32; convert "
                    "the model to float32, or give a strategy that does not compress, as fedavg"
                )
        return cls(tuple(arrays), tuple(array.shape for array in arrays.values()))

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of entries of each array."""
        return tuple(math.prod(shape) for shape in self.shapes)

    @property
    def size(self) -> int:
        """Number of entries of the flat vector."""
        return sum(self.sizes)

    def blocks(self, scope: Scope) -> tuple[int, ...]:
        """Return the sizes of what is compressed as one: every tensor, or the whole model."""
        return self.sizes if scope == "tensor" else (self.size,)

    def flatten(self, arrays: Mapping[str, NDArray[np.generic]]) -> Vector:
        """Return the arrays, row by row and one after the other, as a new float32 vector."""
        parts = [arrays[name].reshape(-1) for name in self.names]
        return np.concatenate(parts).astype(np.float32, copy=False)

    def unflatten(self, vector: Vector) -> dict[str, NDArray[np.generic]]:
        """Return the named arrays that the vector holds, as views of it."""
        parts = np.split(vector, np.cumsum(self.sizes)[:-1])
        return {
            name: part.reshape(shape)
            for name, part, shape in zip(self.names, parts, self.shapes, strict=True)
        }
