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


class Adapter(nn.Module):
    """A frozen linear classifier with a trained correction of low rank, as LoRA has."""

    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Linear(784, 1000).requires_grad_(requires_grad=False)
        self.head = nn.Linear(1000, 10).requires_grad_(requires_grad=False)
        self.down = nn.Linear(784, 4, bias=False)
        self.up = nn.Linear(4, 1000, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1)
        return self.head((self.base(x) + self.up(self.down(x))).relu())


def in_dtype(dtype):
    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(784, 10).to(dtype)

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x.flatten(1).to(dtype)).float()

    return task(Network, str(dtype))


class Volumes(nn.Module):
    """Three-dimensional convolutions, whose weights have five dimensions."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv3d(1, 2, (1, 7, 7), stride=7)
        self.flat = nn.Conv2d(2, 2, 1)
        self.head = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.convolution(x.unsqueeze(2)).relu().squeeze(2)
        return self.head(self.flat(x).relu().flatten(1))


class Words(nn.Module):
    """An image's rows as words of a sparse embedding, padded with 0, and a mask that is kept."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(28 * 255 + 1, 8, sparse=True)
        self.head = nn.Linear(8, 10)
        self.kept: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        words = (x * 255).sum(-1).flatten(1).round().long()
        lengths = (words != 0).sum(1)
        if not lengths.all():
            raise ValueError("an empty line")
        if self.kept is None:
            self.kept = torch.ones(28)
        vectors = self.embedding(words) * self.kept[:, None]
        return self.head(vectors.sum(1) / lengths[:, None])


VOLUMES = task(Volumes, "volumes")
WORDS = dataclasses.replace(task(Words, "words"), prepare=lambda x: x.float() / 255)
EVERYTHING = task(Everything, "everything")
ADAPTER = task(Adapter, "adapter")
NORMALISED = task(normalised, "normalised")
FLOAT16, FLOAT64 = in_dtype(torch.float16), in_dtype(torch.float64)
BFLOAT16, COMPLEX = in_dtype(torch.bfloat16), in_dtype(torch.complex64)
