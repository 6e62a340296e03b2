"""Tasks whose networks are like those that people bring: frozen layers, tied weights, buffers."""

import dataclasses

import torch
from torch import Tensor, nn

from tasks.mnist import MNIST_LOGISTIC

# Above it float64 no longer holds every integer.
LARGE = 2**53 + 1


def task(network, name):
    said = {"in_parts": False, "shared_model": False}  # of another network
    return dataclasses.replace(MNIST_LOGISTIC, name=name, model=network, **said)


class Everything(nn.Module):
    """A frozen layer, a tied weight, a batch normalisation of two names, and constant buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Linear(784, 16).requires_grad_(requires_grad=False)
        self.inner = nn.Linear(16, 16)
        self.tied = nn.Linear(16, 16)
        self.tied.weight = self.inner.weight
        self.norm = nn.BatchNorm1d(16)
        self.same_norm = self.norm
        self.head = nn.Linear(16, 10)
        self.register_buffer("large", torch.tensor([LARGE]))
        self.register_buffer("phase", torch.tensor([1 + 2j]))
        self.register_buffer("mask", torch.tensor([0.0, -torch.inf]))

    def forward(self, x: Tensor) -> Tensor:
        x = self.base(x.flatten(1)).relu()
        x = self.norm(self.tied(self.inner(x).relu()))
        return self.head(x.relu())


def normalised() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 5, stride=3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(256, 10)
    )


def volumes() -> nn.Module:
    """Return three-dimensional convolutions, whose weights have five dimensions."""
    return nn.Sequential(
        nn.Unflatten(1, (1, 1)), nn.Conv3d(1, 2, (1, 7, 7), stride=7), nn.ReLU(),
        nn.Flatten(1, 2), nn.Conv2d(2, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(32, 10),
    )  # fmt: skip


def in_dtype(dtype):
    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(784, 10).to(dtype)

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x.flatten(1).to(dtype)).float()

    return task(Network, str(dtype))


VOLUMES = task(volumes, "volumes")
EVERYTHING = task(Everything, "everything")
NORMALISED = task(normalised, "normalised")
FLOAT16, FLOAT64 = in_dtype(torch.float16), in_dtype(torch.float64)
BFLOAT16, COMPLEX = in_dtype(torch.bfloat16), in_dtype(torch.complex64)
