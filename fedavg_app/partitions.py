"""Which examples belong to which client.

A partition is one index array per client, fixed by (scheme, its arguments, K, seed).
"""

import hashlib
import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from pydantic import ValidationError

from fedavg_app.config import RunConfig, arguments
from fedavg_app.errors import ConfigError
from fedavg_app.schemes import (
    Classes,
    Dirichlet,
    Iid,
    Indices,
    Labels,
    Natural,
    Scheme,
    Shards,
)
from tasks.data.atomic import replacing
from tasks.data.store import Dataset, cache_root, writing

SCHEMES: dict[str, type[Scheme]] = {
    "iid": Iid,
    "shards": Shards,
    "classes": Classes,
    "dirichlet": Dirichlet,
    "natural": Natural,
}


def make_scheme(name: str, arguments: Mapping[str, Any]) -> Scheme:
    """Return the scheme of that name with these arguments.

    Raises:
        ConfigError: An unknown scheme, an unknown argument, or one out of its range.
    """
    if name not in SCHEMES:
        raise ConfigError("partition", name, f"known partitions: {', '.join(SCHEMES)}")
    try:
        return SCHEMES[name].model_validate(dict(arguments))
    except ValidationError as error:
        first = error.errors()[0]
        fix = first["msg"].removeprefix("Input ")
        if first["type"] == "extra_forbidden":
            fix = f"{name} takes {', '.join(map(_kebab, SCHEMES[name].model_fields)) or 'nothing'}"
        value = f"{_kebab(str(first['loc'][0]))} = {first['input']}"
        raise ConfigError("partition-args", value, fix) from None


@lru_cache(maxsize=8)
def _cached(path: str) -> list[Indices]:
    with np.load(path) as stored:
        return np.split(stored["indices"], stored["offsets"])


def partition(data: Dataset, split: str, config: RunConfig) -> list[Indices]:
    """Return the rows of every client in a split of the data set.

    The same seed cuts both splits alike: a client's test examples have the classes, or the owner,
    of its training examples.

    Args:
        data: The data set.
        split: "train" or "test".
        config: Names the scheme, its arguments, K and the seed.

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
        arguments("partition-args", config.partition_args),
        config.num_clients,
        config.seed,
        train,
    )


def split_labels(
    labels: Labels,
    fingerprint: str,
    scheme: str,
    arguments: Mapping[str, Any],
    num_clients: int,
    seed: int,
    reference: Labels | None = None,
) -> list[Indices]:
    """Return the index arrays of all clients, from the cache where they were computed before.

    Args:
        labels: What the scheme goes by, (n,) int64: targets or owners.
        fingerprint: What identifies ``labels``: the data set's fingerprint and the split's name.
        scheme: A name of `SCHEMES`.
        arguments: The scheme's own arguments.
        num_clients: K.
        seed: The run's seed.
        reference: The training set's labels, where these are not.

    Raises:
        DataError: The cache cannot be written.
        ConfigError: As for `make_scheme`, or the examples cannot be split like that.
    """
    chosen = make_scheme(scheme, arguments)
    chosen.check(labels, num_clients)
    described = json.dumps([fingerprint, scheme, chosen.model_dump(), num_clients, seed])
    digest = hashlib.sha256(described.encode()).hexdigest()
    path = cache_root() / "partitions" / f"{digest[:32]}.npz"
    if not path.is_file():
        settled = chosen.settle(labels if reference is None else reference, num_clients, seed)
        found = chosen.split(labels, num_clients, settled)
        offsets = np.cumsum([len(indices) for indices in found])[:-1]
        with writing(path.parent):
            path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path) as temporary, temporary.open("wb") as file:
                np.savez(file, indices=np.concatenate(found), offsets=offsets)
    return _cached(str(path))


def _kebab(name: str) -> str:
    return name.replace("_", "-")
