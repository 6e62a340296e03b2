"""Examples that are read one by one, for data that do not fit into memory, as of the hub."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tasks.data.dataset import DataError, DataOptions, Dataset, Split, evenly, leaves, reading
from tasks.data.formats import STATE
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
            if (array := np.asarray(value)).dtype.kind not in "biuf":
                raise DataError(f"an example has a {type(value).__name__}: give numbers or images")
            yield array.tobytes()

    def check(self) -> None:
        """Check that there is a label for each example; DataError else."""
        for name, array in (("labels", self.labels), ("owners", self.owners)):
            if array is not None and len(array) != len(self):
                text = f"there are {len(self)} examples, but {len(array)} {name}: give as many"
                raise DataError(text)


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

    They are in the library's torch format: an image is uint8 (channels, height, width), whole
    numbers are int64 and others float32. With "data-dir" a copy of the hub's folder is read, or on
    a device what ``flwr-datasets create`` wrote, whose rows are all for training.

    Args:
        name: On the hub, as "ylecun/mnist".
        inputs: The column with the inputs; several become a dictionary of them.
        target: The column with the target. Whole numbers are what a partition by label goes by.
        owner: The column that says who a row is from, for the partition "natural".
        train: The rows for training, as `datasets.load_dataset` has them: "train[:80%]" for a part.
        test: The rows for testing.
        config: The data set's configuration, where it has several.
    """
    columns = [inputs] if isinstance(inputs, str) else list(inputs)

    def example(row: dict[str, Any]) -> tuple[Any, Any]:
        found = row[inputs] if isinstance(inputs, str) else {name: row[name] for name in columns}
        return found, row[target]

    def split(rows: Any) -> MapStyleSplit:
        read = rows.with_format("torch", columns=[*columns, target])
        is_class = "int" in getattr(rows.features[target], "dtype", "")
        labels = np.array(rows[target][:], np.int64) if is_class else None
        owners = np.unique(rows[owner][:], return_inverse=True)[1] if owner else None
        return MapStyleSplit(read, None, owners, labels, example)

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
