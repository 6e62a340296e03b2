"""The keys of a node's config: ``flower-supernode --node-config "partition-id=0 ..."``."""

from collections.abc import Mapping
from typing import Any

# The number of the client that the node is, from 0.
PARTITION_ID = "partition-id"
# How many clients there are; for simulations, nothing here reads it.
NUM_PARTITIONS = "num-partitions"
# The directory of the node's own data, used instead of its part of a shared data set; the second
# key is the name in Flower's own apps.
DATA_DIRS = ("data-dir", "data-path")
# In a node's answer to the server's query: the fingerprint of such data, and how many examples they
# have for training; neither where there are none.
OWN_DATA, OWN_EXAMPLES = "own-data", "own-examples"
# In its answer to a query that has the run's settings: digests of the shared data set and of its
# partition, as its process has them.
DATA_DIGEST, PARTITION_DIGEST = "data", "partition"
# CPU threads that training may use.
THREADS = "threads"


def own_data(node_config: Mapping[str, Any]) -> str:
    """Return the directory of the node's own data; empty where it has none."""
    return next((str(node_config[key]) for key in DATA_DIRS if node_config.get(key)), "")
