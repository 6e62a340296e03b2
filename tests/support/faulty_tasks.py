"""Tasks with one fault each, as people make them, and what a check says of it."""

import dataclasses
import itertools
import threading

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from tasks.data.dataset import Dataset, Split
from tests.support import networks
from tests.support.networks import CLASSES, MLP, images


def changed(change, **attributes):
    """Return the task of an ordinary network with changed data."""

    def load(options):
        data = images(options)
        parts = [Split(*change(part.inputs, part.targets)) for part in (data.train, data.test)]
        return dataclasses.replace(data, train=parts[0], test=parts[1])

    return dataclasses.replace(MLP, dataset=load, **attributes)


def with_nan(inputs, targets):
    inputs = inputs.copy()
    inputs[7, 0, 0, 0] = np.nan
    return inputs, targets


class Two(nn.Module):
    """Returns a pair."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(64, CLASSES)

    def forward(self, x):
        x = self.head(x.flatten(1))
        return x, x


def broadcast(outputs, targets):
    return (outputs > 0).eq(targets).sum()


def one_output():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 1))


def one_loss(outputs, targets):
    return functional.binary_cross_entropy_with_logits(outputs, targets.float()[:, None])


def unseeded(options) -> Dataset:
    data = images(options)
    rows = np.random.default_rng().permutation(len(data.train))
    part = Split(data.train.inputs[rows], data.train.targets[rows])
    return dataclasses.replace(data, train=part)


def hooked() -> nn.Module:
    model = networks.mlp()
    model[1].weight.register_post_accumulate_grad_hook(lambda _: None)
    return model


class Locked(nn.Module):
    """Keeps a lock."""

    def __init__(self) -> None:
        super().__init__()
        self.head, self.lock = nn.Linear(64, CLASSES), threading.Lock()

    def forward(self, x):
        return self.head(x.flatten(1))


STEPS = itertools.count()


class Global(nn.Module):
    """Counts the steps of all clients in a global variable."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(64, CLASSES)

    def forward(self, x):
        return self.head(x.flatten(1)) / (1 + (next(STEPS) if self.training else 0))


def pixels(inputs, targets):
    """Return a class for each pixel of 4 times 4."""
    small = inputs[:, :, ::2, ::2]
    return small, (small[:, 0] > 0).astype(np.int64)


def own_cross_entropy(outputs, targets):
    return functional.cross_entropy(outputs, targets)


def segments():
    return nn.Conv2d(1, CLASSES, 3, padding=1)


NAN = changed(with_nan)
FROM_ONE = changed(lambda inputs, targets: (inputs, targets + 1))
IGNORED = changed(lambda inputs, targets: (inputs, targets - 1))
FLOAT64 = changed(lambda inputs, targets: (inputs.astype(np.float64), targets))
PAIR = networks.task("pair", Two)
BROADCAST = networks.task(
    "broadcast", one_output, learning_rate=0.1, loss=one_loss, correct=broadcast
)
SUM = networks.task("sum", networks.mlp, loss=nn.CrossEntropyLoss(reduction="none"))
UNSEEDED = dataclasses.replace(MLP, dataset=unseeded)
DRAWN = networks.task(
    "drawn", lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, CLASSES, bias=next(STEPS) < 0))
)
HOOKED = networks.task("hooked", hooked)
SEGMENTS = changed(pixels, model=segments, loss=own_cross_entropy)
LOCKED = networks.task("locked", Locked)
GLOBAL = networks.task("global", Global)
PREPARED = dataclasses.replace(MLP, prepare=lambda x: x.missing)
LAZY = networks.task("lazy-linear", lambda: nn.Sequential(nn.Flatten(), nn.LazyLinear(CLASSES)))
NO_SUM = networks.task("no-sum", networks.mlp, loss=networks.weighted_loss, in_parts=True)

PADDED = networks.task("padded", networks.mlp, loss=nn.CrossEntropyLoss(ignore_index=0))


class Scaled(nn.Module):
    """A loss with a weight of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, outputs, targets):
        return functional.cross_entropy(outputs * self.scale, targets)


OWN_WEIGHT = networks.task("own-weight", networks.mlp, loss=Scaled())
NOISY = dataclasses.replace(MLP, prepare=lambda x: x + torch.randn_like(x))

# What the check says of each: the kind, and a part of the line.
FOUND = {
    "NAN": ("error", "dataset: 1 training examples have NaN or infinite inputs, the first is"),
    "FROM_ONE": ("error", "dataset: targets are 1 to 4, but the model has 4 outputs, for"),
    "IGNORED": ("error", "dataset: targets are -1 to 2, but the model has 4 outputs"),
    "FLOAT64": ("error", "prepare: returns inputs float64 (8, 1, 8, 8) for a model of float32: "),
    "PAIR": ("error", "model: returns a tuple of 2, and the loss is torch's cross-entropy: "),
    "BROADCAST": ("error", "correct: counts"),
    "SUM": ("error", "loss: returned float32 (8,) for outputs float32 (8, 4) and targets"),
    "UNSEEDED": ("error", "dataset: gives other examples each time: draw a split with a fixed"),
    "HOOKED": ("error", "model: '1.weight' has a hook for when its gradient has been accumulated"),
    "SEGMENTS": ("error", "correct: cannot tell which dimension of outputs float32 (8, 4, 4, 4)"),
    "LOCKED": ("warning", "model: its attribute 'lock' cannot be copied: what training changes in"),
    "GLOBAL": ("error", "model: a client's training depends on who trained before in its process"),
    "PREPARED": ("error", "prepare: raised AttributeError for inputs float32 (8, 1, 8, 8)"),
    "LAZY": ("error", "model: array '1.weight' has no shape yet: run an example through the"),
    "PADDED": ("error", "dataset: targets of 0 are ignored by the loss, but count as predictions"),
    "OWN_WEIGHT": ("error", "loss: has weights of its own, which no client trains"),
    "NOISY": ("error", "prepare: gives other inputs each time: draw in augment"),
    "NO_SUM": ("error", "in_parts: is True, but the loss is"),
}
