"""Natural: one client for each owner of the data."""

import numpy as np

from fedavg_app.errors import ConfigError
from fedavg_app.partitioning.partitioner import Labels, Partitioner, Rows, joined
from tasks.training.random_streams import numpy_generator


class Natural(Partitioner):
    """One client for each owner of the data, for example a speaking role.

    With fewer clients than owners, the clients are owners drawn at random, in their order.
    """

    def split(self, labels: Labels, num_clients: int, seed: int) -> Rows:
        """Return each owner's examples, in their order; ``labels`` are the owners."""
        order = np.argsort(labels, kind="stable")
        owners, starts, sizes = np.unique(labels[order], return_index=True, return_counts=True)
        if num_clients > len(owners):
            fix = f"the data have only {len(owners)} owners; give fewer"
            raise ConfigError("num-clients", num_clients, fix)
        chosen = numpy_generator(seed, "partition").choice(len(owners), num_clients, replace=False)
        chosen.sort()
        return Rows.of(order[joined(starts[chosen], sizes[chosen])], sizes[chosen])
