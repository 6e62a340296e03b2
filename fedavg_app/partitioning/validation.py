"""The validation split: a share of each client's training examples, set aside from the seed."""

import numpy as np

from fedavg_app.partitioning.partitioner import Rows
from tasks.training.random_streams import numpy_generator


def set_aside(rows: Rows, share: float, seed: int) -> tuple[Rows, Rows]:
    """Return each client's examples without those set aside, and those; both in their order.

    Of n examples round(share n) are set aside, drawn without replacement, and n - 1 at most.

    Args:
        rows: The examples of every client, of which each has one at least.
        share: The share to set aside, in [0, 1).
        seed: The run's seed.
    """
    sizes = rows.sizes
    counts = np.minimum(np.rint(share * sizes).astype(np.int64), sizes - 1)
    client = np.repeat(np.arange(len(rows)), sizes)
    draws = numpy_generator(seed, "validation").random(len(client))
    rank = np.empty_like(client)  # of an example's draw among its client's, from 0
    rank[np.lexsort((draws, client))] = np.arange(len(client)) - rows.offsets[client]
    aside = rank < counts[client]
    kept = Rows.of(rows.examples[~aside], sizes - counts)
    return kept, Rows.of(rows.examples[aside], counts)
