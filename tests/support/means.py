import numpy as np

from strategies.rounds.aggregation import BufferMean


def weighted_mean(updates, weights):
    """Return the weighted mean of named arrays; there is one weight for each client."""
    mean = BufferMean({name: np.zeros_like(array) for name, array in updates[0].items()})
    for update, weight in zip(updates, weights, strict=True):
        mean.add(update, weight)
    return mean.result()
