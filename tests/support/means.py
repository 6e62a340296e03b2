"""Means of several updates at once."""

from strategies.aggregation import WeightedMean


def weighted_mean(updates, weights):
    """Return the `WeightedMean` of the updates; there is one weight for each."""
    mean = WeightedMean()
    for update, weight in zip(updates, weights, strict=True):
        mean.add(update, weight)
    return mean.result()
