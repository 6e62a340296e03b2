"""A data set of the Hugging Face hub, by its name and the names of its columns."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasks.data.dataset import DataError, DataOptions, Dataset, reading
from tasks.data.map_style import MapStyleSplit
from tasks.data.own_examples import STATE


def hub_dataset(
    name: str,
    inputs: str | Sequence[str],
    target: str,
    *,
    owner: str = "",
    train: str = "train",
    test: str = "test",
    config: str | None = None,
) -> Callable[[DataOptions], Dataset]:
    """Return what `Task` takes as ``dataset``: rows of the hub, read from disk as they are needed.

    With "data-dir" a copy of the hub's folder is read, or on a device what ``flwr-datasets create``
    wrote, whose rows are all for training. An image becomes uint8 (height, width), in colour
    (3, height, width), and a list an array.

    Args:
        name: On the hub, as "ylecun/mnist".
        inputs: The column with the inputs; several become a dictionary of them.
        target: The column with the target. Whole numbers are what a partition by label goes by.
        owner: The column that says who a row is from, for the partition "natural".
        train: The rows for training, as `datasets.load_dataset` has them: "train[:80%]" for a part.
        test: The rows for testing.
        config: The data set's configuration, where it has several.
    """
    columns = [*([inputs] if isinstance(inputs, str) else inputs), target]

    def example(row: dict[str, Any]) -> tuple[Any, Any]:
        *values, wanted = (_array(row[column]) for column in columns)
        named = dict(zip(columns, values, strict=False))
        return (values[0] if isinstance(inputs, str) else named), wanted

    def split(rows: Any) -> MapStyleSplit:
        needed = [*columns, *([owner] if owner else [])]
        if missing := [column for column in needed if column not in rows.column_names]:
            have = ", ".join(rows.column_names)
            raise DataError(f"{name} has no column {missing[0]!r}; it has: {have}")
        owners = _owners(rows[owner][:]) if owner else None
        return MapStyleSplit(rows, None, owners, _labels(rows, target), example)

    def load(options: DataOptions) -> Dataset:
        import datasets

        source = options.directory or name
        fix = "connect to the network, or give data-dir, a copy of the hub's folder"
        with reading(f"{name} from {source}" if options.directory else name, fix):
            if (Path(source) / STATE).is_file():
                rows = datasets.load_from_disk(source)
                parts = [rows, rows.select([])]
            else:
                parts = [
                    datasets.load_dataset(source, config, split=split) for split in (train, test)
                ]
            training, testing = map(split, parts)
            return Dataset.of(training, testing, options, f"{name} from {source}")

    return load


def _array(value: Any) -> Any:
    """Return a column's value as an array; a number stays a number."""
    if isinstance(value, int | float):
        return value
    found = np.asarray(value)
    if found.dtype.kind not in "biuf":
        raise ValueError(f"it is a {type(value).__name__}: give columns of numbers or images")
    is_coloured = hasattr(value, "getbands") and found.ndim == 3
    return np.ascontiguousarray(found.transpose(2, 0, 1)) if is_coloured else found


def _labels(rows: Any, target: str) -> NDArray[np.int64] | None:
    """Return the targets if each is a whole number."""
    if "int" not in getattr(rows.features[target], "dtype", ""):
        return None
    return np.array(rows[target][:], np.int64)


def _owners(names: Sequence[Any]) -> NDArray[np.int64]:
    _, found = np.unique(names, return_inverse=True)
    return found.astype(np.int64)
