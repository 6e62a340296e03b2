"""Data sets as the rest of the project sees them."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


class DataError(ValueError):
    """A data set is not available; the message says what is wrong and what to do, in one line."""


@dataclass(frozen=True)
class DataOptions:
    """Where to look for a data set.

    Attributes:
        source: "mirror", "hub", "embedded" or "auto"; "auto" takes the first available of cache,
            system package, mirror and embedded default.
        directory: A directory with the data set's canonical files; if set, nothing else is used.
        own: The directory holds one device's own examples: it may hold NumPy archives instead of
            the canonical files, and there may be no test examples.
    """

    source: str = "auto"
    directory: str = ""
    own: bool = False


@dataclass(frozen=True)
class Split:
    """The training or the test examples, as stored.

    Attributes:
        inputs: (n, ...), as the files have them.
        targets: (n,) or, with several predictions an example, (n, ...), int64.
        owners: Who each example is from, where the data say so: (n,) int64.
    """

    inputs: NDArray[np.generic]
    targets: NDArray[np.int64]
    owners: NDArray[np.int64] | None = None

    @property
    def labels(self) -> NDArray[np.int64]:
        """What a partition goes by, (n,): the owners where there are any, else the targets."""
        return self.targets if self.owners is None else self.owners

    def __len__(self) -> int:
        return len(self.targets)


@dataclass(frozen=True)
class Dataset:
    """A training and a test set.

    Attributes:
        train: The examples that are split on clients.
        test: The examples that the global model is evaluated on.
        options: What loads exactly this data set again, in this or another process.
        description: Human-readable origin of the data.
        fingerprint: SHA-256 of the arrays, hexadecimal.
    """

    train: Split
    test: Split
    options: DataOptions
    description: str
    fingerprint: str
