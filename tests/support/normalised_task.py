"""A task whose network has batch normalisation: float and integer buffers."""

import dataclasses

from torch import nn

from tasks.mnist import MNIST_LOGISTIC


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 5, stride=3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(256, 10)
    )


TASK = dataclasses.replace(MNIST_LOGISTIC, name="normalised", model=network)


def dense_network() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 10), nn.BatchNorm1d(10))


DENSE = dataclasses.replace(MNIST_LOGISTIC, name="normalised-dense", model=dense_network)
