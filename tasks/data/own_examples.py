"""A device's own examples: NumPy archives, or what ``flwr-datasets create`` writes.

Archives are ``train.npz`` and, where the device can test a model, ``test.npz``, each with the
arrays "inputs" and "targets" as the task stores them. A folder of ``flwr-datasets create``,
``partition_0`` for example, holds rows of a data set of the Hugging Face hub, as the library
`datasets` saves them. They are all for training.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tasks.data.dataset import Schema, Split, Splits, reading

TRAIN, TEST = "train.npz", "test.npz"
STATE = "state.json"


def find(folder: Path) -> list[Path]:
    """Return the archives in the folder, that for training first, or the files of saved rows.

    The list is empty where neither is there.
    """
    if (folder / TRAIN).is_file():
        return [path for path in (folder / TRAIN, folder / TEST) if path.is_file()]
    if (folder / STATE).is_file():
        return sorted(path for path in folder.iterdir() if path.suffix in (".arrow", ".json"))
    return []


def read(
    paths: list[Path], schema: Schema, read_hub: Callable[[Any], Splits] | None = None
) -> Splits:
    """Read what `find` returns into (train, test); the latter is empty if there is none.

    Args:
        paths: The files.
        schema: What the data set's examples look like.
        read_hub: Parses the data set's rows, as those of the hub.

    Raises:
        DataError: A file is corrupt, or its examples do not fit the schema.
    """
    if paths[0].name == TRAIN:
        splits = [_read_archive(path, schema) for path in paths]
        return splits[0], splits[1] if len(splits) > 1 else _none_of(splits[0])
    folder = paths[0].parent
    with reading(folder, "create it again, with rows of this data set"):
        import datasets

        assert read_hub is not None, "the hub does not have this data set"
        rows = datasets.load_from_disk(str(folder))
        train, _ = read_hub({"train": rows, "test": rows.select(range(1))})
        return schema.check(train), _none_of(train)


def _read_archive(path: Path, schema: Schema) -> Split:
    fix = "write it again, with the arrays 'inputs' and 'targets'"
    with reading(path, fix), np.load(path, allow_pickle=False) as archive:
        return schema.check(Split(archive["inputs"], archive["targets"]))


def _none_of(split: Split) -> Split:
    return split.part(slice(0))
