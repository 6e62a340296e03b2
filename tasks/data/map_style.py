"""Examples that are read one by one, for data that do not fit into memory."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tasks.data.dataset import DataError, Split, evenly
from tasks.structure import leaves
from tasks.training.random_streams import seeded

READ = 8  # examples of a digest


@dataclass(frozen=True)
class MapStyleSplit(Split):
    """Examples that are read when they are needed, from a map-style dataset.

    Those for training may have random transforms, which draw from the global state of torch,
    `numpy.random` or `random`: they are seeded by seed, client and round. Their targets, and the
    examples for testing, are the same each time.

    Attributes:
        inputs: Any object with ``len`` and ``[number]``, such as a data set of torchvision, or one
            of Hugging Face's, which are mapped files.
        targets: None: each example has its own.
        owners: As for `Split`.
        labels: What a partition by label goes by, (n,) int64; None if nothing is known without
            reading the examples.
        example: Turns what ``inputs`` has for a number into the example, (input, target), each a
            tensor, an array, a number or a dictionary of such; None where it is that already.
    """

    inputs: Any
    targets: None = None
    owners: NDArray[np.int64] | None = None
    labels: NDArray[np.int64] | None = None
    example: Callable[[Any], tuple[Any, Any]] | None = None

    def __len__(self) -> int:
        return len(self.inputs)

    @property
    def owners_or_targets(self) -> Any:
        """The default labels of a partition by label."""
        return self.labels if self.owners is None else self.owners

    def read(self, number: int) -> tuple[Any, Any]:
        """Return an example.

        Raises:
            DataError: It cannot be read, or is no pair (input, target).
        """
        try:
            found = self.inputs[number]
            found = found if self.example is None else self.example(found)
        except Exception as error:
            text = f"reading example {number} raised {type(error).__name__}: {error}"
            raise DataError(text) from error
        if not isinstance(found, tuple | list) or len(found) != 2:
            kind = type(found).__name__
            raise DataError(f"example {number} is a {kind}, not a pair (input, target)")
        return found[0], found[1]

    def sampled(self) -> Iterator[bytes]:
        """Yield the number of examples, labels and owners, and the values of `READ` examples.

        Transforms may draw from global random states, which have the same seed each time.
        """
        yield str(len(self)).encode()
        for array in (self.labels, self.owners):
            yield b"" if array is None else np.ascontiguousarray(array).tobytes()
        with seeded(0, torch.device("cpu")):
            examples = [self.read(int(place)) for place in evenly(len(self), READ)]
        for value in leaves(tuple(examples)):
            yield np.asarray(value).tobytes()

    def check(self) -> None:
        """Check that there is a label for each example; DataError else."""
        for name, array in (("labels", self.labels), ("owners", self.owners)):
            if array is not None and len(array) != len(self):
                text = f"there are {len(self)} examples, but {len(array)} {name}: give as many"
                raise DataError(text)
