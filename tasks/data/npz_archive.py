"""A device's own examples as NumPy archives.

A directory holds ``train.npz`` and, where the device can test a model, ``test.npz``, each with the
arrays "inputs" and "targets" as the task stores them.
"""

import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tasks.data.dataset import DataError, Split

TRAIN, TEST = "train.npz", "test.npz"
NO_PREDICTION = -100  # what torch's cross-entropy ignores


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


def find(folder: Path) -> list[Path]:
    """Return the archives in the folder, that for training first; empty where it is not there."""
    if not (folder / TRAIN).is_file():
        return []
    return [path for path in (folder / TRAIN, folder / TEST) if path.is_file()]


def read(paths: list[Path], schema: Schema) -> tuple[Split, Split]:
    """Read what `find` returns into (train, test); without a ``test.npz`` the latter is empty.

    Raises:
        DataError: A file is corrupt, or its arrays do not fit the schema.
    """
    train = _read(paths[0], schema)
    test = _read(paths[1], schema) if len(paths) > 1 else Split(train.inputs[:0], train.targets[:0])
    return train, test


def _read(path: Path, schema: Schema) -> Split:
    try:
        with np.load(path, allow_pickle=False) as archive:
            inputs, targets = archive["inputs"], archive["targets"]
    except (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataError(
            f"{path} is corrupt or has no arrays 'inputs' and 'targets' ({reason}); write it again"
        ) from error
    return checked(path, inputs, targets, schema)


def checked(
    path: Path, inputs: NDArray[np.generic], targets: NDArray[np.generic], schema: Schema
) -> Split:
    """Return a device's own examples as a split.

    Raises:
        DataError: They do not fit the schema; ``path`` is named.
    """
    wanted = f"{np.dtype(schema.dtype)} (n, {', '.join(map(str, schema.shape))})"
    if inputs.dtype != schema.dtype or inputs.ndim == 0 or inputs.shape[1:] != schema.shape:
        raise DataError(
            f"{path}: inputs are {inputs.dtype} {inputs.shape}, not {wanted}; write it again"
        )
    if not np.issubdtype(targets.dtype, np.integer):
        raise DataError(f"{path}: targets are {targets.dtype}, not integers; write it again")
    if targets.shape != (len(inputs), *schema.predictions) or len(inputs) == 0:
        raise DataError(
            f"{path}: targets are {targets.shape} for {len(inputs)} inputs; write it again"
        )
    if targets.max() >= schema.classes or (not schema.predictions and targets.min() < 0):
        raise DataError(f"{path}: targets must be 0 to {schema.classes - 1}; write it again")
    if schema.symbols and (inputs.min() < 0 or inputs.max() >= schema.symbols):
        raise DataError(f"{path}: inputs must be 0 to {schema.symbols - 1}; write it again")
    found = targets.astype(np.int64)
    found[found < 0] = NO_PREDICTION
    if not (found.reshape(len(found), -1) >= 0).any(axis=1).all():
        raise DataError(f"{path}: an example has no prediction; leave it out")
    return Split(inputs, found)
