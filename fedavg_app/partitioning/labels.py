"""What a partition by label goes by: owners, targets, a column, or a function of the examples."""

import pkgutil
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedavg_app.errors import ConfigError
from fedavg_app.partitioning.partitioner import Labels
from fedavg_app.plugins import load_component
from tasks.data.dataset import Dataset, Split

KEY, BINS = "partition-by", "bins:"


def find_labels(data: Dataset, by: str) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the labels of the training and of the test examples, of whatever kind they are.

    Args:
        data: The data set.
        by: The key "partition-by": "bins:4" for four bins of the targets, with as many training
            examples in each; the name of an array among the inputs or the targets;
            "package.module:function" for a function of a `Split`; "" for the owners, or the
            targets where the data have none.

    Raises:
        ConfigError: There is no such array, or the targets are no numbers to be put into bins.
    """
    splits = (data.train, data.test)
    if by.startswith(BINS):
        return _bins(splits, by)
    if ":" in by:
        function = load_component(KEY, by, pkgutil.resolve_name)
        return tuple(_called(function, split, by) for split in splits)  # type: ignore[return-value]
    if by:
        return tuple(_column(split, by) for split in splits)  # type: ignore[return-value]
    found = [split.owners_or_targets for split in splits]
    # Those that have no labels of one array can still be split at random.
    return tuple(  # type: ignore[return-value]
        labels if isinstance(labels, np.ndarray) else np.empty((len(split), 0))
        for labels, split in zip(found, splits, strict=True)
    )


def check_labels(labels: NDArray[Any], partition: str, by: str) -> Labels:
    """Return labels for a partition that goes by them: one integer for each example.

    Raises:
        ConfigError: They are something else.
    """
    if labels.ndim == 1 and labels.dtype.kind in "iu":
        return labels.astype(np.int64)
    if by:
        fix = f"gives {labels.dtype} {labels.shape}: give one integer for each example"
        raise ConfigError(KEY, by, fix)
    fix = "give 'iid', owners for the data, or partition-by, as 'bins:10' or 'package:function'"
    kind = "no single array of targets (a MapStyleSplit has labels=)"
    if labels.ndim > 1 and labels.shape[1]:
        kind = f"{labels[0].size} targets"
    elif labels.ndim == 1:
        kind = f"a target of {labels.dtype}, which is no class"
    raise ConfigError("partition", partition, f"an example has {kind}; {fix}")


def _called(function: Any, split: Split, by: str) -> NDArray[Any]:
    try:
        labels = np.asarray(function(split))
    except Exception as error:
        raise ConfigError(KEY, by, f"it raised {type(error).__name__}: {error}") from error
    if labels.shape[:1] != (len(split),):
        fix = f"it gave {labels.shape} for {len(split)} examples: give one integer for each"
        raise ConfigError(KEY, by, fix)
    return labels


def _bins(splits: tuple[Split, Split], by: str) -> tuple[Labels, Labels]:
    number, found = by.removeprefix(BINS), [split.targets for split in splits]
    if not number.isdecimal() or int(number) < 2:
        raise ConfigError(KEY, by, "give the number of bins, 2 or more, as in bins:10")
    targets = [labels for labels in found if isinstance(labels, np.ndarray) and labels.ndim == 1]
    if len(targets) < len(found):
        raise ConfigError(KEY, by, "an example has no single target; give a function instead")
    edges = np.quantile(targets[0], np.linspace(0, 1, int(number) + 1)[1:-1])
    train, test = (np.searchsorted(edges, values, side="right") for values in targets)
    return train, test


def _column(split: Split, name: str) -> NDArray[Any]:
    several = [values for values in (split.inputs, split.targets) if isinstance(values, Mapping)]
    for values in several:
        if name in values:
            return np.asarray(values[name])
    known = ", ".join(key for values in several for key in values) or "none, the data have no names"
    fix = f"no such array; there are: {known}; or give 'bins:10', or 'package.module:function'"
    raise ConfigError(KEY, name, fix)
