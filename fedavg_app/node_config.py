"""The keys of a node's config: ``flower-supernode --node-config "partition-id=0 ..."``."""

# The number of the client that the node is, from 0.
PARTITION_ID = "partition-id"
# How many clients there are; for simulations, nothing here reads it.
NUM_PARTITIONS = "num-partitions"
# The directory of data of the node's own, used instead of its part of a shared data set.
DATA_DIR = "data-dir"
# CPU threads that training may use.
THREADS = "threads"
