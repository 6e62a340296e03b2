"""Forms in which images and a device's own examples come.

Own examples are NumPy archives, ``train.npz`` and, where the device can test a model, ``test.npz``,
each with the arrays "inputs" and "targets" as the task stores them; or a folder of ``flwr-datasets
create``, ``partition_0`` for example, which holds rows of a data set of the Hugging Face hub, as
the library `datasets` saves them, all for training.
"""

from pathlib import Path
from typing import Any

import numpy as np

from tasks.data.dataset import DataError, Schema, Split, Splits, reading

TRAIN, TEST = "train.npz", "test.npz"
STATE = "state.json"


def find_own(folder: Path) -> list[Path]:
    """Return the archives in the folder, that for training first, or the files of saved rows.

    The list is empty where neither is there.
    """
    if (folder / TRAIN).is_file():
        return [path for path in (folder / TRAIN, folder / TEST) if path.is_file()]
    if (folder / STATE).is_file():
        return sorted(path for path in folder.iterdir() if path.suffix in (".arrow", ".json"))
    return []


def read_own(paths: list[Path], schema: Schema, column: str) -> Splits:
    """Read what `find_own` returns into (train, test); the latter is empty if there is none.

    Args:
        paths: The files.
        schema: What the data set's examples look like.
        column: As for `_read_rows`; empty if the hub does not have the data set.

    Raises:
        DataError: A file is corrupt, or its examples do not fit the schema.
    """
    if paths[0].name == TRAIN:
        splits = [_read_archive(path, schema) for path in paths]
    else:
        folder = paths[0].parent
        with reading(folder, "create it again, with rows of this data set"):
            import datasets

            if not column:
                raise DataError(f"{folder} has rows of the hub, which lacks this data set")
            splits = [schema.check(_read_rows(datasets.load_from_disk(str(folder)), column))]
    return splits[0], splits[1] if len(splits) > 1 else splits[0].part(slice(0))


def _read_rows(rows: Any, column: str) -> Split:
    """Return the examples of a `datasets.Dataset` of images, as `read_torchvision` does.

    Args:
        rows: With a column "label".
        column: The column with the images.
    """
    return _labelled([np.asarray(image) for image in rows[column]], rows["label"])


def read_torchvision(name: str, folder: Path, *, download: bool = False) -> Splits:
    """Return (train, test) of a data set of torchvision, which checks its files' checksums.

    Inputs are uint8 (n, h, w), of coloured images (n, 3, h, w).
    """
    from torchvision import datasets  # slow to import: only a cache miss pays for it

    kind = getattr(datasets, name)
    train, test = (kind(folder, train=train, download=download) for train in (True, False))
    return _labelled(train.data, train.targets), _labelled(test.data, test.targets)


def _read_archive(path: Path, schema: Schema) -> Split:
    fix = "write it again, with the arrays 'inputs' and 'targets'"
    with reading(path, fix), np.load(path, allow_pickle=False) as archive:
        return schema.check(Split(archive["inputs"], archive["targets"]))


def _labelled(images: Any, labels: Any) -> Split:
    pixels = np.asarray(images)
    if pixels.ndim == 4:
        pixels = np.ascontiguousarray(pixels.transpose(0, 3, 1, 2))
    return Split(pixels, np.asarray(labels, dtype=np.int64))
