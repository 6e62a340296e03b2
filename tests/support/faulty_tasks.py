"""Tasks with one fault each, as people make them, and the line that a check prints."""

import dataclasses
import random

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torchmetrics import MetricCollection
from torchmetrics.classification import BinaryAUROC, MulticlassF1Score

from tasks.data.dataset import Dataset, Split
from tasks.data.map_style import MapStyleSplit
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


class Head(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(64, CLASSES)

    def forward(self, x):
        return self.head(x.flatten(1))


def broadcast(outputs, targets):
    return (outputs > 0).eq(targets).sum(), len(targets)


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
    model[1].weight.register_hook(lambda gradient: 2 * gradient)
    return model


def pixels(inputs, targets):
    """Return a class for each pixel of 4 times 4."""
    small = inputs[:, :, ::2, ::2]
    return small, (small[:, 0] > 0).astype(np.int64)


NAN = changed(with_nan)
FROM_ONE = changed(lambda inputs, targets: (inputs, targets + 1))
BROADCAST = networks.task(
    "broadcast", one_output, learning_rate=0.1, loss=one_loss, metrics={"accuracy": broadcast}
)
SUM = networks.task("sum", networks.mlp, loss=nn.CrossEntropyLoss(reduction="none"))
UNSEEDED = dataclasses.replace(MLP, dataset=unseeded)
HOOKED = networks.task("hooked", hooked, in_parts=True)
SEGMENTS = changed(
    pixels, model=lambda: nn.Conv2d(1, CLASSES, 3, padding=1),
    loss=lambda outputs, targets: functional.cross_entropy(outputs, targets),
)  # fmt: skip
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


def signs(inputs, targets):
    """Return targets of -1 and 1; a negative target would count as no prediction."""
    return inputs, np.where(targets == 0, -1, 1)


def margin(outputs, targets):
    return functional.soft_margin_loss(outputs.flatten(), targets.float())


def sign_correct(outputs, targets):
    return ((outputs.flatten() > 0) * 2 - 1 == targets).sum(), len(targets)


class Closure(Head):
    """Counts its passes in a closure."""

    def __init__(self) -> None:
        super().__init__()
        passes = {"n": 0}

        def scale(x):
            passes["n"] += 1
            return x / passes["n"]

        self.scale = scale

    def forward(self, x):
        return self.scale(super().forward(x))


class Counting(nn.Module):
    calls = 0

    def forward(self, outputs, targets):
        self.calls += 1
        return functional.cross_entropy(outputs, targets) / self.calls


def with_test(change):
    def load(options):
        data = images(options)
        return dataclasses.replace(data, test=change(data.test))

    return dataclasses.replace(MLP, dataset=load)


SIGNS = changed(signs, model=one_output, loss=margin, metrics={"accuracy": sign_correct})
SHARE = networks.task(
    "share",
    networks.mlp,
    metrics={"accuracy": lambda o, t: ((o.argmax(1) == t).float().mean(), len(t))},
)
BY_BATCH = dataclasses.replace(MLP, prepare=lambda inputs: inputs - inputs.mean(0))
CLOSURE = networks.task("closure", Closure, shared_model=True)
COUNTING = networks.task("counting", networks.mlp, loss=Counting())
NORM_IN_PARTS = networks.task("norm", lambda: networks.convolutions(nn.BatchNorm2d), in_parts=True)
OTHER_TEST = with_test(lambda test: dataclasses.replace(test, inputs=test.inputs[:, :, :4]))
NO_TEST = with_test(lambda test: Split(test.inputs[:0], test.targets[:0]))
NO_TARGET = changed(lambda inputs, targets: (inputs, np.full_like(targets, -100)))
RATE = networks.task("rate", networks.mlp, learning_rate=-0.1)
PERCENT = networks.task("percent", networks.mlp, target=95)
NETWORK = networks.task("network", networks.mlp())
NOTHING = networks.task("nothing", lambda: None)
SOFTMAX = networks.task("softmax", lambda: nn.Sequential(networks.mlp(), nn.Softmax(-1)))
LOGITS = networks.task("nll", networks.mlp, loss=lambda o, t: functional.nll_loss(o, t))
BELOW_0 = networks.task("below", networks.mlp, loss=lambda o, _: o.mean() - 9)


class Sigmoid(Head):
    """A probability for each of the two halves of the classes, before a loss that takes logits."""

    def forward(self, x):
        return super().forward(x)[:, 0].sigmoid()


def two_loss(outputs, targets):
    return functional.binary_cross_entropy_with_logits(outputs, (targets > 1).float())


def two_correct(outputs, targets):
    return ((outputs > 0) == (targets > 1)).sum(), len(targets)


SIGMOID = networks.task("sigmoid", Sigmoid, loss=two_loss, metrics={"accuracy": two_correct})


class Small(Head):
    """Logits that happen to be from 0 to 1."""

    def __init__(self) -> None:
        super().__init__()
        nn.init.constant_(self.head.bias, 0.5)
        nn.init.zeros_(self.head.weight)

    def forward(self, x):
        return super().forward(x)[:, 0]


SMALL = dataclasses.replace(SIGMOID, model=Small)
SUMMED = networks.task("summed", networks.mlp, loss=nn.CrossEntropyLoss(reduction="sum"))


def as_floats(inputs, targets):
    return inputs, targets.astype(np.float32)


def metric(name, given, **attributes):
    return networks.task("metric", networks.mlp, metrics={name: given}, **attributes)


FLOATS = changed(as_floats, model=one_output, loss=nn.MSELoss())
NO_DIRECTION = metric("gap", lambda outputs, targets: (outputs.std(), len(targets)))
TWO_CLASSES = changed(
    lambda inputs, targets: (inputs, targets % 2), model=one_output,
    loss=lambda outputs, targets: functional.binary_cross_entropy_with_logits(
        outputs[:, 0], targets.float()
    ),
    metrics={"auc": BinaryAUROC()}, predict=lambda outputs: outputs[:, 0],
)  # fmt: skip


def in_place_loss(outputs, targets):
    return functional.cross_entropy(outputs, targets.clamp_(min=1))


def in_place_metric(outputs, targets):
    return outputs.round_().sum(), len(targets)


def copied(model, examples, settings, memory):
    return {"train-loss": 0.0}


IN_PLACE_LOSS = networks.task("in-place", networks.mlp, loss=in_place_loss)
IN_PLACE_METRIC = metric("own", in_place_metric, objective="max own")
ONE_NUMBER = metric("own", lambda outputs, _: outputs.mean(), objective="max own")
UNTRAINED = networks.task("untrained", networks.mlp, train=copied)
NOTHING_BACK = networks.task("nothing-back", networks.mlp, train=lambda *_: None)
COLLECTION = networks.task("collection", networks.mlp, metrics=MetricCollection([]))
SEVERAL = metric("f1", MulticlassF1Score(CLASSES, average=None))


class Rows(torch.utils.data.Dataset):
    """The images one by one, as map-style data; ``fault`` changes an example."""

    def __init__(self, split, fault) -> None:
        self.split, self.fault = split, fault

    def __len__(self) -> int:
        return len(self.split)

    def __getitem__(self, number):
        return self.fault(self.split.inputs[number], self.split.targets[number])


def one_by_one(fault, *, labelled=True):
    def load(options):
        data = images(options)
        train, test = (
            MapStyleSplit(Rows(split, fault), labels=split.targets if labelled else None)
            for split in (data.train, data.test)
        )
        return dataclasses.replace(data, train=train, test=test)

    return dataclasses.replace(MLP, dataset=load)


class Named(Head):
    def forward(self, x):
        return {"logits": super().forward(x)}


GENERATOR, RNG = torch.Generator().manual_seed(0), np.random.default_rng(0)


def flipped(image):
    """Return the image, seldom mirrored, by a generator that the seed does not reach."""
    return image[:, :, ::-1].copy() if RNG.random() < 0.1 else image


OWN_GENERATOR = dataclasses.replace(
    MLP, augment=lambda x: x + torch.randn(x.shape, generator=GENERATOR)
)
OWN_TRANSFORM = one_by_one(lambda inputs, target: (flipped(inputs), target))
RANDOM_TEST = one_by_one(lambda inputs, target: (inputs + torch.rand(()).numpy(), target))
RANDOM_TARGET = one_by_one(lambda inputs, target: (inputs, random.randrange(4)), labelled=False)
UNREADABLE = one_by_one(lambda inputs, target: (inputs["image"], target))
NO_PAIR = one_by_one(lambda inputs, _: inputs)
LEARNT = dataclasses.replace(
    MLP,
    dataset=lambda options: (lambda data: dataclasses.replace(data, test=data.train))(
        images(options)
    ),
)
NAMED = networks.task(
    "named",
    Named,
    loss=lambda outputs, targets: functional.cross_entropy(outputs["logits"], targets),
    metrics={"top": lambda outputs, _: (outputs["logits"].max(), 1)},
    objective="max top",
)


# What the check prints for each: the kind, and the beginning of the line.
class Transposed(nn.Module):
    """Two layers with one matrix, which torch takes for two."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder = nn.Linear(64, 64), nn.Linear(64, 64)
        self.decoder.weight.data = self.encoder.weight.data.T
        self.head = nn.Linear(64, CLASSES)

    def forward(self, x):
        return self.head(self.decoder(self.encoder(x.flatten(1)).relu()))


class OwnNoise(Head):
    def __init__(self) -> None:
        super().__init__()
        self.generator = torch.Generator().manual_seed(5)

    def forward(self, x):
        return super().forward(x + torch.randn(x.shape, generator=self.generator))


TRANSPOSED = dataclasses.replace(MLP, model=Transposed)
OWN_NOISE = dataclasses.replace(MLP, model=OwnNoise)

FOUND = {
    "TRANSPOSED": ("warning", "model: encoder.weight and decoder.weight share memory, but each"),
    "OWN_NOISE": ("warning", "model: the generator generator begins anew with every message"),
    "OWN_GENERATOR": ("error", "augment: gives other inputs under the same seed: draw from the"),
    "OWN_TRANSFORM": ("error", "dataset: gives other inputs under the same seed: draw from the"),
    "RANDOM_TEST": ("error", "dataset: gives different inputs each time: draw in the training set"),
    "RANDOM_TARGET": ("error", "dataset: gives a training example another target each time: draw"),
    "UNREADABLE": ("error", "dataset: reading example 0 raised IndexError: only integers"),
    "NO_PAIR": ("error", "dataset: example 0 is a ndarray, not a pair (input, target)"),
    "LEARNT": ("warning", "dataset: the test examples are the training examples: each test"),
    "NAMED": ("error", "metrics: top: gives"),
    "TWO_CLASSES": ("error", "metrics: auc: gives"),
    "IN_PLACE_LOSS": ("error", "loss: changes the targets, which all clients share: work on"),
    "IN_PLACE_METRIC": ("error", "metrics: own: changes the outputs or the targets, which others"),
    "ONE_NUMBER": ("error", "metrics: own: returned a Tensor: return a sum and a count"),
    "UNTRAINED": ("error", "train: leaves the model as it was: change its own weights"),
    "NOTHING_BACK": (
        "error",
        "model: raised ValueError in training: train returned a NoneType: return",
    ),
    "COLLECTION": ("error", "metrics: they are a MetricCollection: give a dictionary of them by"),
    "FLOATS": ("error", "loss: raised UserWarning for outputs float32 (8, 1) and targets"),
    "NO_DIRECTION": ("error", "objective: gap does not say whether more of it is better: give"),
    "SEVERAL": ("error", "metrics: f1: gives (4,), not one number: choose an average"),
    "NAN": ("error", "dataset: the training example 7 has NaN or infinite inputs: leave it"),
    "FROM_ONE": ("error", "loss: raised IndexError for outputs float32 (8, 4) and targets int64"),
    "SIGNS": ("error", "dataset: there are training targets of -1, and a negative target is no"),
    "SHARE": ("error", "metrics: accuracy: counts 0."),
    "BY_BATCH": ("error", "prepare: gives an example another input with others than alone"),
    "CLOSURE": ("error", "shared_model: is True, but a client's training depends on who trained"),
    "COUNTING": ("error", "model or loss: a client's training depends on who trained before in"),
    "NORM_IN_PARTS": ("error", "in_parts: is True, but cutting a batch changes '0.weight' by"),
    "OTHER_TEST": ("error", "dataset: training inputs are float32 (1, 8, 8), test inputs float32"),
    "NO_TEST": ("error", "dataset: there are no test examples, which every evaluation needs"),
    "NO_TARGET": ("error", "dataset: the training examples have no target to be predicted"),
    "RATE": ("error", "learning_rate: is -0.1: give a number above 0"),
    "PERCENT": ("error", "target: is 95: give a share from 0 to 1"),
    "NETWORK": ("error", "model: is a network: give a function that returns a new network"),
    "NOTHING": ("error", "model: returned a NoneType, not a torch.nn.Module"),
    "SOFTMAX": ("warning", "loss: torch's cross_entropy takes logits, and is given probabilities"),
    "LOGITS": ("warning", "loss: torch's nll_loss takes log-probabilities, and is given other"),
    "SIGMOID": ("warning", "loss: torch's binary_cross_entropy_with_logits takes logits, and is"),
    "BELOW_0": ("warning", "loss: is -"),
    "SUMMED": ("warning", "loss: is a sum over the examples: a step grows with the size of its"),
    "BROADCAST": ("error", "metrics: accuracy: counts 14 of 8 predictions: give the number of"),
    "SUM": ("error", "loss: returned float32 (8,) for outputs float32 (8, 4) and targets"),
    "UNSEEDED": ("error", "dataset: gives different examples each time: draw a split with a fixed"),
    "HOOKED": ("error", "in_parts: is True, but its steps change '1.weight' by"),
    "SEGMENTS": (
        "error",
        "metrics: accuracy cannot tell which dimension of outputs float32 (8, 4,",
    ),
    "PREPARED": ("error", "prepare: raised AttributeError for 8 inputs, float32 (1, 8, 8)"),
    "LAZY": ("error", "model: array '1.weight' has no shape yet: run an example through the"),
    "PADDED": ("error", "dataset: targets of 0 are ignored by the loss, but count as predictions"),
    "OWN_WEIGHT": ("error", "loss: has weights of its own, which no client trains"),
    "NOISY": ("error", "prepare: gives different inputs each time: draw in augment"),
    "NO_SUM": ("error", "in_parts: is True, but cutting a batch changes '1.weight' by"),
}
