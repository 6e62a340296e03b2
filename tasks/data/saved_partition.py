"""A device's own examples as ``flwr-datasets create`` writes them.

Such a folder, ``partition_0`` for example, holds rows of a data set of the Hugging Face hub, as the
library `datasets` saves them. They are for training, but for those of a data set with owners, of
which a part is for testing, as it is of the hub's.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tasks.data.dataset import DataError, Split
from tasks.data.npz_archive import Schema, checked

STATE = "state.json"


def find(folder: Path) -> list[Path]:
    """Return the files of such a folder; empty where it is another one."""
    if not (folder / STATE).is_file():
        return []
    return sorted(path for path in folder.iterdir() if path.suffix in (".arrow", ".json"))


def read(
    folder: Path, read_hub: Callable[[Any], tuple[Split, Split]], schema: Schema
) -> tuple[Split, Split]:
    """Read the folder into (train, test); the latter is empty for data without owners.

    Args:
        folder: The folder.
        read_hub: Parses the data set's rows, as those of the hub.
        schema: What its examples look like.

    Raises:
        DataError: It is corrupt, or its rows are those of another data set.
        ModuleNotFoundError: A package that reads it is not installed.
    """
    import datasets

    try:
        rows = datasets.load_from_disk(str(folder))
        train, test = read_hub({"train": rows, "test": rows.select(range(1))})
    except ModuleNotFoundError:
        raise
    except (ImportError, LookupError, OSError, RuntimeError, TypeError, ValueError) as error:
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise DataError(
            f"{folder} has no rows of this data set ({reason}); create it again"
        ) from error
    owned = train.owners is not None and len(test) > 0
    train = checked(folder, train.inputs, train.targets, schema)
    if owned:
        return train, checked(folder, test.inputs, test.targets, schema)
    return train, Split(train.inputs[:0], train.targets[:0])
