"""Data sets as the rest of the project sees them."""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

NO_PREDICTION = -100  # what torch's cross-entropy ignores
SAMPLED, DIGEST_DIGITS = 1000, 16
# An array (n, ...) of any numbers, or several by name, as token ids and their mask.
Stored = NDArray[Any] | Mapping[str, NDArray[Any]]


class DataError(ValueError):
    """A data set is not available; the message says what is wrong and what to do, in one line."""


def map_leaves(function: Callable[[Any], Any], value: Any) -> Any:
    """Return the value with the function's result in the place of every array; None stays None."""
    if isinstance(value, Mapping):
        return {key: map_leaves(function, part) for key, part in value.items()}
    if isinstance(value, tuple):
        return tuple(map_leaves(function, part) for part in value)
    return None if value is None else function(value)


def leaves(value: Any) -> Iterator[Any]:
    """Yield the arrays of a value."""
    if isinstance(value, Mapping | tuple):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from leaves(part)
    elif value is not None:
        yield value


def first_leaf(value: Any) -> Any:
    """Return the first array of a value; StopIteration if it has none."""
    return next(leaves(value))


@dataclass(frozen=True)
class DataOptions:
    """Where to look for a data set.

    Attributes:
        source: "mirror", "embedded" or "auto"; "auto" takes the first available of cache,
            mirror and embedded default.
        directory: A directory with the data set's canonical files; if set, nothing else is used.
        own: The directory holds one device's own examples: it may hold NumPy archives instead of
            the canonical files, and there may be no test examples.
    """

    source: str = "auto"
    directory: str = ""
    own: bool = False


def evenly(length: int, number: int) -> NDArray[np.int64]:
    """Return up to ``number`` places, evenly spread over a length."""
    return np.linspace(0, max(length - 1, 0), min(length, number), dtype=np.int64)


@dataclass(frozen=True)
class Split:
    """The training or the test examples, as stored.

    Attributes:
        inputs: (n, ...), as the files have them, or several such arrays by name.
        targets: The same; classes are (n,) or, with several predictions an example, (n, ...),
            int64. None for none, as where the loss needs the inputs alone.
        owners: Who each example is from, where the data say so: (n,) int64.
    """

    inputs: Stored
    targets: Stored | None
    owners: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(first_leaf(self.inputs))

    @property
    def classes(self) -> NDArray[np.int64] | None:
        """The targets where they are classes, or other integers of 64 bits; None else."""
        targets = self.targets
        is_int64 = isinstance(targets, np.ndarray) and targets.dtype == np.int64
        return targets if is_int64 else None  # type: ignore[return-value]

    @property
    def owners_or_targets(self) -> Any:
        """What a partition by label uses by default."""
        return self.targets if self.owners is None else self.owners

    def sampled(self) -> Iterator[bytes]:
        """Yield dtype, shape, and the values of up to `SAMPLED` examples of each array."""
        places = evenly(len(self), SAMPLED)
        for array in leaves((self.inputs, self.targets, self.owners)):
            yield f"{array.dtype}{array.shape}".encode()
            yield np.ascontiguousarray(array[places]).tobytes()

    def check(self) -> None:
        """Check that inputs and targets are arrays of numbers, as many of each.

        Raises:
            DataError: They are not.
        """
        for name in ("inputs", "targets"):
            for array in leaves(getattr(self, name)):
                if not isinstance(array, np.ndarray):
                    kind = type(array).__name__
                    raise DataError(f"the {name} are a {kind}: give a NumPy array")
                if array.dtype.kind not in "biuf":
                    raise DataError(f"the {name} are {array.dtype}: give numbers")
        numbers = [len(array) for array in leaves((self.inputs, self.targets))]
        if len(set(numbers)) > 1:
            text = " and ".join(map(str, numbers))
            raise DataError(f"inputs and targets have {text} examples: give as many of each")

    def part(self, rows: "NDArray[np.int64] | slice") -> "Split":
        """Return some of the examples."""
        inputs, targets, owners = (
            map_leaves(lambda array: array[rows], values)
            for values in (self.inputs, self.targets, self.owners)
        )
        return Split(inputs, targets, owners)


Splits = tuple[Split, Split]


@dataclass(frozen=True)
class Dataset:
    """A training and a test set, and maybe a validation set.

    Attributes:
        train: The examples that are split on clients.
        test: The examples that the global model is evaluated on.
        options: What loads exactly this data set again, in this or another process.
        description: Human-readable origin of the data.
        fingerprint: SHA-256 of the arrays, hexadecimal; of some examples (`of`) where reading all
            of them takes long.
        validation: The examples by which the best round is chosen; None for none of the task's own.
    """

    train: Split
    test: Split
    options: DataOptions
    description: str
    fingerprint: str
    validation: Split | None = None

    def digest(self) -> str:
        """Return a digest by which two processes find that they do not hold the same examples.

        It is of the fingerprint and of some examples of each split, evenly spread: a split that is
        drawn differs in all of them.
        """
        return self._of_samples(self.fingerprint)[:DIGEST_DIGITS]

    @classmethod
    def of(
        cls,
        train: Split,
        test: Split,
        options: DataOptions,
        description: str,
        validation: Split | None = None,
    ) -> "Dataset":
        """Return a data set whose fingerprint is of some examples of each split, evenly spread."""
        found = cls(train, test, options, description, "", validation)
        return replace(found, fingerprint=found._of_samples())

    def _of_samples(self, prefix: str = "") -> str:
        found = hashlib.sha256(prefix.encode())
        for split in self._splits():
            for part in split.sampled():
                found.update(part)
        return found.hexdigest()

    def __post_init__(self) -> None:
        for split in self._splits():
            split.check()

    def _splits(self) -> list[Split]:
        return [self.train, self.test, *([] if self.validation is None else [self.validation])]


@dataclass(frozen=True)
class Schema:
    """What the stored examples of a data set look like.

    Attributes:
        dtype: Of the inputs.
        shape: Of one input.
        classes: Targets are below; a negative one is no prediction.
        predictions: The shape of one example's targets; () for a single one.
        symbols: Inputs are 0 to below; 0 means that all values of the dtype are inputs.
    """

    dtype: type[np.generic]
    shape: tuple[int, ...]
    classes: int
    predictions: tuple[int, ...] = ()
    symbols: int = 0

    def check(self, split: Split) -> Split:
        """Return the examples, their targets int64, and all negative ones the same.

        Raises:
            ValueError: They do not fit the schema.
        """
        inputs, targets = np.asarray(split.inputs), np.asarray(split.targets)
        if inputs.dtype != self.dtype or inputs.ndim == 0 or inputs.shape[1:] != self.shape:
            wanted = f"{np.dtype(self.dtype)} (n, {', '.join(map(str, self.shape))})"
            raise ValueError(f"inputs are {inputs.dtype} {inputs.shape}, not {wanted}")
        if not np.issubdtype(targets.dtype, np.integer):
            raise ValueError(f"targets are {targets.dtype}, not integers")
        if targets.shape != (len(inputs), *self.predictions) or len(inputs) == 0:
            raise ValueError(f"targets are {targets.shape} for {len(inputs)} inputs")
        if targets.max() >= self.classes or (not self.predictions and targets.min() < 0):
            raise ValueError(f"targets must be 0 to {self.classes - 1}")
        if self.symbols and (inputs.min() < 0 or inputs.max() >= self.symbols):
            raise ValueError(f"inputs must be 0 to {self.symbols - 1}")
        found = targets.astype(np.int64)
        found[found < 0] = NO_PREDICTION
        if not (found.reshape(len(found), -1) >= 0).any(axis=1).all():
            raise ValueError("an example has no prediction")
        return replace(split, targets=found)


@contextmanager
def reading(what: object, fix: str = "fetch it again") -> Iterator[None]:
    """Turn whatever reading damaged data raises into a `DataError`, in one line.

    Args:
        what: What is read; the line begins with it.
        fix: What the user can do.
    """
    try:
        yield
    except DataError:
        raise
    except ModuleNotFoundError as error:
        install = "install it with: pip install 'fedavg-app[simulation]'"
        raise DataError(f"{what}: the package {error.name} is missing; {install}") from error
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        raise DataError(f"{what} cannot be loaded ({reason}); {fix}") from error
