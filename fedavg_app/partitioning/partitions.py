"""Partitions by name.

A partition is every client's examples, fixed by (partitioner, its arguments, K, seed).
"""

import hashlib
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from pydantic import ValidationError

from fedavg_app.config import RunConfig, kebab
from fedavg_app.errors import ConfigError
from fedavg_app.partitioning.classes import Classes
from fedavg_app.partitioning.dirichlet import Dirichlet
from fedavg_app.partitioning.function import partitioner_of
from fedavg_app.partitioning.iid import Iid
from fedavg_app.partitioning.labels import check_labels, find_labels
from fedavg_app.partitioning.natural import Natural
from fedavg_app.partitioning.partitioner import Partitioner, Rows
from fedavg_app.partitioning.shards import Shards
from fedavg_app.plugins import load_component
from tasks.data.dataset import DIGEST_DIGITS, Dataset

PARTITIONERS: dict[str, type[Partitioner]] = {
    "iid": Iid,
    "shards": Shards,
    "classes": Classes,
    "dirichlet": Dirichlet,
    "natural": Natural,
}


def make_partitioner(name: str, arguments: Mapping[str, Any]) -> Partitioner:
    """Return the partitioner of that name with these arguments.

    Raises:
        ConfigError: An unknown partitioner, an unknown argument, or one out of its range.
    """
    kind = PARTITIONERS.get(name) or load_component("partition", name, _load)
    try:
        return kind.model_validate(dict(arguments))
    except ValidationError as error:
        first = error.errors()[0]
        fix = first["msg"].removeprefix("Input ")
        if first["type"] == "extra_forbidden":
            taken = map(kebab, kind.model_fields)
            fix = f"{name} takes {', '.join(taken) or 'nothing'}"
        value = f"{kebab(str(first['loc'][0]))} = {first['input']}"
        raise ConfigError("partition-args", value, fix) from None


def _load(name: str) -> type[Partitioner]:
    if ":" not in name:
        raise ValueError(f"known partitions: {', '.join(PARTITIONERS)}; or package.module:function")
    return partitioner_of(pkgutil.resolve_name(name))


@dataclass(frozen=True)
class DataDigests:
    """What two processes compare to find that they hold the same examples for each client.

    Attributes:
        data: Of the data set.
        partition: Of all clients' rows for training.
    """

    data: str
    partition: str

    @classmethod
    def of(cls, data: Dataset, rows: Rows | None) -> Self:
        """Return the digests of a data set and its partition, if it has one."""
        found = hashlib.sha256()
        if rows is not None:
            found.update(rows.sizes.tobytes())
            found.update(rows.examples.tobytes())
        return cls(data.digest(), found.hexdigest()[:DIGEST_DIGITS])

    def check(self, others: "DataDigests", config: RunConfig) -> None:
        """Compare with those of a process that runs clients.

        Raises:
            ConfigError: They differ.
        """
        if others.data != self.data:
            fix = "its dataset() gives the server and a client different examples; draw a split "
            raise ConfigError("task", config.task, f"{fix}with a fixed seed, or use load_cached")
        if others.partition != self.partition:
            fix = (
                "it gives the server and a client different splits; draw from the seed it is given"
            )
            raise ConfigError("partition", config.partition, fix)


def partition(data: Dataset, split: str, config: RunConfig) -> Rows:
    """Return the rows of every client in a split of the data set.

    The same seed splits both alike: a client's test examples have the owner of its training
    examples, or its classes, as nearly as the splits have the same share of each class.

    Args:
        data: The data set.
        split: "train" or "test".
        config: Names the partitioner, its arguments, K and the seed.

    Raises:
        ConfigError: As for `make_partitioner`, the examples cannot be split like that, or the two
            splits have different owners.
    """
    train, test = find_labels(data, config.partition_by)
    if config.partition == "natural" and not np.array_equal(np.unique(train), np.unique(test)):
        raise ConfigError(
            "partition", "natural", "the test set has other owners than the training set"
        )
    if config.partition in PARTITIONERS.keys() - {"iid"}:
        train, test = (
            check_labels(split, config.partition, config.partition_by) for split in (train, test)
        )
    partitioner = make_partitioner(config.partition, config.partition_arguments)
    labels, count = {"train": train, "test": test}[split], config.num_clients
    if count > len(labels):
        fix = f"more clients than the {len(labels)} {split} examples; give fewer"
        raise ConfigError("num-clients", count, fix)
    rows = partitioner.split(labels, count, partitioner.resolve_seed(train, count, config.seed))
    if not rows.sizes.all():
        fix = f"some of the {count} clients would have none of the {len(labels)} {split} examples"
        fix += "; give fewer clients, or arguments that make their parts less unequal"
        raise ConfigError("partition-args", config.partition_args, fix)
    return rows
