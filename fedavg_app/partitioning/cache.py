"""Partitions by name, computed once and cached.

A partition is one index array per client, fixed by (partitioner, its arguments, K, seed).
"""

import hashlib
import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from pydantic import ValidationError

from fedavg_app.config import RunConfig, kebab, parse_arguments
from fedavg_app.errors import ConfigError, MissingLibraryError
from fedavg_app.partitioning.classes import Classes
from fedavg_app.partitioning.dirichlet import Dirichlet
from fedavg_app.partitioning.iid import Iid
from fedavg_app.partitioning.natural import Natural
from fedavg_app.partitioning.partitioner import Indices, Labels, Partitioner
from fedavg_app.partitioning.shards import Shards
from tasks.data.atomic_file import replacing
from tasks.data.cache import cache_root, reporting_write_errors
from tasks.data.dataset import Dataset

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
    if name not in PARTITIONERS:
        raise ConfigError("partition", name, f"known partitions: {', '.join(PARTITIONERS)}")
    try:
        return PARTITIONERS[name].model_validate(dict(arguments))
    except ValidationError as error:
        first = error.errors()[0]
        fix = first["msg"].removeprefix("Input ")
        if first["type"] == "extra_forbidden":
            taken = map(kebab, PARTITIONERS[name].model_fields)
            fix = f"{name} takes {', '.join(taken) or 'nothing'}"
        value = f"{kebab(str(first['loc'][0]))} = {first['input']}"
        raise ConfigError("partition-args", value, fix) from None


def partition(data: Dataset, split: str, config: RunConfig) -> list[Indices]:
    """Return the rows of every client in a split of the data set.

    The same seed splits both alike: a client's test examples have the owner of its training
    examples, or its classes, as nearly as the splits have the same share of each class.

    Args:
        data: The data set.
        split: "train" or "test".
        config: Names the partitioner, its arguments, K and the seed.

    Raises:
        ConfigError: As for `split_labels`, or the two splits have different owners.
    """
    train, test = data.train.labels, data.test.labels
    if config.partition == "natural" and not np.array_equal(np.unique(train), np.unique(test)):
        raise ConfigError(
            "partition", "natural", "the test set has other owners than the training set"
        )
    return split_labels(
        {"train": train, "test": test}[split],
        f"{data.fingerprint}-{split}",
        config.partition,
        parse_arguments("partition-args", config.partition_args),
        config.num_clients,
        config.seed,
        train,
    )


def split_labels(
    labels: Labels,
    fingerprint: str,
    name: str,
    arguments: Mapping[str, Any],
    num_clients: int,
    seed: int,
    reference: Labels | None = None,
) -> list[Indices]:
    """Return the index arrays of all clients, from the cache where they were computed before.

    Args:
        labels: What the partition goes by, (n,) int64: targets or owners.
        fingerprint: What identifies ``labels``: the data set's fingerprint and the split's name.
        name: A name of `PARTITIONERS`.
        arguments: The partitioner's own arguments.
        num_clients: K.
        seed: The run's seed.
        reference: The training set's labels, where these are not.

    Raises:
        DataError: The cache cannot be written.
        ConfigError: As for `make_partitioner`, or the examples cannot be split like that.
        MissingLibraryError: The partitioner's library is not installed.
    """
    partitioner = make_partitioner(name, arguments)
    partitioner.check(labels, num_clients)
    described = [
        fingerprint, name, partitioner.version, partitioner.model_dump(), num_clients, seed,
    ]  # fmt: skip
    digest = hashlib.sha256(json.dumps(described).encode()).hexdigest()
    path = cache_root() / "partitions" / f"{digest[:32]}.npz"
    if not path.is_file():
        try:
            resolved = partitioner.resolve_seed(
                labels if reference is None else reference, num_clients, seed
            )
            parts = partitioner.split(labels, num_clients, resolved)
        except ModuleNotFoundError as error:
            fix = f"the package {error.name} is missing; pip install 'fedavg-app[simulation]'"
            raise MissingLibraryError("partition", name, fix) from error
        offsets = np.cumsum([len(indices) for indices in parts])[:-1]
        with reporting_write_errors(path.parent):
            path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path) as temporary, temporary.open("wb") as file:
                np.savez(file, indices=np.concatenate(parts), offsets=offsets)
    return _load(str(path))


@lru_cache(maxsize=8)
def _load(path: str) -> list[Indices]:
    with np.load(path) as stored:
        return np.split(stored["indices"], stored["offsets"])
