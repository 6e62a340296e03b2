"""Which examples belong to which client.

A partition is one index array per client, fixed by (scheme, its arguments, K, seed). The schemes
are those of `flwr_datasets.partitioner` where it has them.
"""

import hashlib
import inspect
import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedavg_app.atomic import replacing
from fedavg_app.errors import ConfigError
from tasks.data.store import cache_root
from tasks.seeds import integer, stream

if TYPE_CHECKING:
    from flwr_datasets.partitioner import Partitioner

Indices = NDArray[np.int64]


def iid(labels: NDArray[np.int64], num_clients: int, seed: int) -> list[Indices]:
    """Shuffle, then share out evenly (arXiv 1602.05629v4, section 3, "IID")."""
    from flwr_datasets.partitioner import IidPartitioner

    order = stream(seed, "partition").permutation(len(labels))
    return _partition(IidPartitioner(num_clients), labels, order)


def shards(
    labels: NDArray[np.int64], num_clients: int, seed: int, shards_per_client: int = 2
) -> list[Indices]:
    """Sort by label, cut into equal shards, give each client some at random.

    The paper's pathological non-IID split (arXiv 1602.05629v4, section 3): 200 shards of 300 and 2
    for each of 100 clients. Examples that do not fill a shard are left out.
    """
    from flwr_datasets.partitioner import ShardPartitioner

    partitioner = ShardPartitioner(
        num_clients,
        partition_by="label",
        num_shards_per_partition=shards_per_client,
        shuffle=False,
        seed=integer(seed, "partition"),
    )
    # The library's sort need not be stable; sorted input makes the result independent of that.
    return _partition(partitioner, labels, np.argsort(labels, kind="stable"))


SCHEMES: dict[str, Callable[..., list[Indices]]] = {"iid": iid, "shards": shards}


def check_partition(
    scheme: str, arguments: Mapping[str, Any], num_clients: int, num_examples: int
) -> None:
    """Check a partition before anything is computed.

    Raises:
        ConfigError: An unknown scheme or argument, or more clients (or shards) than examples.
    """
    if scheme not in SCHEMES:
        raise ConfigError("partition", scheme, f"known partitions: {', '.join(SCHEMES)}")
    accepted = list(inspect.signature(SCHEMES[scheme]).parameters)[3:]
    for name, value in arguments.items():
        if name not in accepted:
            takes = ", ".join(key.replace("_", "-") for key in accepted) or "no arguments"
            raise ConfigError("partition-args", f"{name} = {value}", f"{scheme} takes {takes}")
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ConfigError("partition-args", f"{name} = {value}", "give a whole number above 0")
    pieces = num_clients * int(arguments.get("shards_per_client", 2 if scheme == "shards" else 1))
    if pieces > num_examples:
        what = "clients" if pieces == num_clients else f"clients ({pieces} shards)"
        raise ConfigError(
            "num-clients", num_clients, f"more {what} than the {num_examples} examples; give fewer"
        )


@lru_cache(maxsize=8)
def _cached(path: str) -> list[Indices]:
    with np.load(path) as stored:
        return np.split(stored["indices"], stored["offsets"])


def partition(
    labels: NDArray[np.int64],
    fingerprint: str,
    scheme: str,
    arguments: Mapping[str, Any],
    num_clients: int,
    seed: int,
) -> list[Indices]:
    """Return the index arrays of all clients, from the cache where they were computed before.

    Args:
        labels: The target of every example, (n,) int64.
        fingerprint: What identifies ``labels``: the data set's fingerprint and the split's name.
        scheme: A name of `SCHEMES`.
        arguments: The scheme's own arguments.
        num_clients: K.
        seed: The run's seed.

    Raises:
        ConfigError: As for `check_partition`.
    """
    check_partition(scheme, arguments, num_clients, len(labels))
    described = json.dumps([fingerprint, scheme, sorted(arguments.items()), num_clients, seed])
    digest = hashlib.sha256(described.encode()).hexdigest()
    path = cache_root() / "partitions" / f"{digest[:32]}.npz"
    if not path.is_file():
        found = SCHEMES[scheme](labels, num_clients, seed, **arguments)
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary, temporary.open("wb") as file:
            offsets = np.cumsum([len(indices) for indices in found])[:-1]
            np.savez(file, indices=np.concatenate(found), offsets=offsets)
    return _cached(str(path))


def _partition(
    partitioner: "Partitioner", labels: NDArray[np.int64], order: Indices
) -> list[Indices]:
    """Run a partitioner of the library on the examples in ``order``; return original indices."""
    import datasets

    partitioner.dataset = datasets.Dataset.from_dict({"label": labels[order], "index": order})
    return [
        np.asarray(partitioner.load_partition(client)["index"], dtype=np.int64)
        for client in range(partitioner.num_partitions)
    ]
