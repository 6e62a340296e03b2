"""What a client hears of its settings, by which road, and why.

- **By its node's config**, from whoever starts the node: which client it is, where its own data
  are, and its threads.
- **By the run config**, which Flower gives each node before the first message: what a process makes
  once and keeps for all messages, or needs before it can read one. These are the task, the split of
  its data, the device, the strategy and mods, and the arrays that stay on the client.
- **By message** (`client_settings`): the local work, since a strategy may change it from round to
  round, and servers other than ours send it, too; and what only the server knows (`ServerFacts`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Self

from flwr.app import ConfigRecord

from fedavg_app.config import RunConfig, kebab, parse_config
from tasks.data.dataset import DataOptions
from tasks.training.training_settings import LocalWork

# Keys of a node's config, ``flower-supernode --node-config "partition-id=0 ..."``.
# Which client the node is, from 0.
PARTITION_ID = "partition-id"
# How many clients there are. Simulations set it, as Flower's do; nothing here reads it.
NUM_PARTITIONS = "num-partitions"
# The directory of the node's own data, used instead of its part of a shared data set. Flower's own
# apps call it "data-path".
DATA_DIRS = ("data-dir", "data-path")
# CPU threads that training may use.
THREADS = "threads"

# Entries of a node's answer to the server's query.
# The fingerprint of its own data and the number of their training examples, if it has own data.
OWN_DATA, OWN_EXAMPLES = "own-data", "own-examples"
# Digests of the shared data set and of its partition, if the query has the run's settings.
DATA_DIGEST, PARTITION_DIGEST = "data", "partition"


@dataclass(frozen=True)
class ServerFacts:
    """What only the server knows once a run begins; field ``data_dir`` is the entry "data-dir".

    Attributes:
        data_source: Where exactly it has the data from.
        data_dir: The directory that they are from, if any.
        num_clients: K, where the run config leaves it open.
        fixed_arrays: The fingerprint of the model's arrays that do not travel.
    """

    data_source: str
    data_dir: str = ""
    num_clients: int = 0
    fixed_arrays: str = ""

    @classmethod
    def of(cls, message: Mapping[str, Any]) -> Self:
        """Return the facts in a message's config.

        Raises:
            KeyError: It does not say where the data are from.
        """
        return cls(
            message["data-source"],
            message.get("data-dir", ""),
            message.get("num-clients", 0),
            message.get("fixed-arrays", ""),
        )

    @property
    def data_options(self) -> DataOptions:
        """Where a client is to look for the data set."""
        return DataOptions(self.data_source, self.data_dir)


def client_settings(work: LocalWork, facts: ServerFacts) -> ConfigRecord:
    """Return what every message tells a client."""
    known = {kebab(name): value for name, value in vars(facts).items()}
    # Flower 1.41 cannot count the bytes of an empty string.
    return ConfigRecord({**work.message(), **{key: value for key, value in known.items() if value}})


def run_config(values: Mapping[str, Any]) -> RunConfig:
    """Return the checked run config of a client's context; a process parses it once.

    Raises:
        ConfigError: As for `parse_config`.
    """
    return _parsed(tuple(values.items()))


@lru_cache(maxsize=2)
def _parsed(items: tuple[tuple[str, Any], ...]) -> RunConfig:
    return parse_config(dict(items))


def own_data(node_config: Mapping[str, Any]) -> str:
    """Return the directory of the node's own data; empty where it has none."""
    return next((str(node_config[key]) for key in DATA_DIRS if node_config.get(key)), "")
