"""Examples of every task's stored form, of noise: for what does not depend on the values."""

import numpy as np

from tasks.data.dataset import Split


def noise(task, count, seed=0):
    """Return a split of ``count`` examples as the task's data set stores them."""
    rng = np.random.default_rng(seed)
    family = task.name.partition("-")[0]
    if family == "shakespeare":
        targets = rng.integers(0, 250, (count, 80))
        targets[:, 60:] = -100  # lines are shorter than the longest
        return Split(rng.integers(1, 250, (count, 80)).astype(np.int16), targets)
    shape, kind, most, classes = {
        "cifar10": ((3, 32, 32), np.uint8, 256, 10),
        "yelp": ((256,), np.uint16, 100, 5),
    }.get(family, ((28, 28), np.uint8, 256, 10))
    inputs = rng.integers(0, most, (count, *shape)).astype(kind)
    return Split(inputs, rng.integers(0, classes, count))
