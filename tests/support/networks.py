"""Ordinary networks that people bring, on small made-up data, as tasks named by their attribute.

The images are float32 (1, 8, 8), the lines of text int64 (12,), padded with 0; both have four
classes.
"""

import random
import warnings

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parametrizations, weight_norm
from torch.nn.utils.rnn import pack_padded_sequence
from torch.utils.checkpoint import checkpoint
from torchvision.transforms import v2

from tasks.base import Task
from tasks.data.dataset import DataOptions, Dataset, Split
from tasks.data.map_style import MapStyleSplit

CLASSES, WORDS, LENGTH = 4, 20, 12
COUNTS = (240, 80)  # for training and for testing


def dataset(train: Split, test: Split, name: str) -> Dataset:
    return Dataset(train, test, DataOptions("embedded"), name, name)


def images(_: DataOptions) -> Dataset:
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(CLASSES, 1, 8, 8)) * 0.7

    def make(count: int) -> Split:
        classes = rng.integers(0, CLASSES, count)
        noise = rng.normal(size=(count, 1, 8, 8))
        return Split((centres[classes] + noise).astype(np.float32), classes)

    return dataset(*map(make, COUNTS), "made-up images")


def lines(_: DataOptions) -> Dataset:
    rng = np.random.default_rng(1)
    frequencies = rng.dirichlet(np.full(WORDS - 1, 0.3), size=CLASSES)

    def make(count: int) -> Split:
        classes = rng.integers(0, CLASSES, count)
        words = np.zeros((count, LENGTH), np.int64)
        for line, own in zip(words, classes, strict=True):
            length = rng.integers(2, LENGTH + 1)
            line[:length] = 1 + rng.choice(WORDS - 1, size=length, p=frequencies[own])
        return Split(words, classes)

    return dataset(*map(make, COUNTS), "made-up lines")


def same(inputs: Tensor) -> Tensor:
    return inputs


def task(name, model, data=images, learning_rate=0.05, **attributes) -> Task:
    return Task(name, model, data, same, learning_rate=learning_rate, **attributes)


def mlp(middle=None) -> nn.Module:
    """Return Flatten, Linear, ReLU, Linear, with ``middle`` around the first linear layer."""
    first = nn.Linear(64, 16)
    return nn.Sequential(
        nn.Flatten(), middle(first) if middle else first, nn.ReLU(), nn.Linear(16, CLASSES)
    )


def old_weight_norm(layer: nn.Module) -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return weight_norm(layer)


def convolutions(norm) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), norm(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, CLASSES)
    )


class RandomPictures(torch.utils.data.Dataset):
    """The training images with transforms as everyone writes them, one by one."""

    def __init__(self, split: Split) -> None:
        self.split = split
        self.transform = v2.Compose([v2.RandomCrop(8, padding=1), v2.RandomHorizontalFlip()])

    def __len__(self) -> int:
        return len(self.split)

    def __getitem__(self, number: int):
        image = self.transform(torch.from_numpy(self.split.inputs[number]))
        brightness = random.uniform(0.9, 1.1) + np.random.normal(0, 0.01)  # noqa: NPY002
        return image * np.float32(brightness), self.split.targets[number]


def random_pictures(options: DataOptions) -> Dataset:
    data = images(options)
    plain = [(image, target) for image, target in zip(data.test.inputs, data.test.targets)]  # noqa: B905
    train = MapStyleSplit(RandomPictures(data.train), labels=data.train.targets)
    test = MapStyleSplit(plain, labels=data.test.targets)
    return Dataset.of(train, test, data.options, "made-up pictures")


class Block(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.a = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.b = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.first, self.second = nn.GroupNorm(2, channels), nn.GroupNorm(2, channels)

    def forward(self, x: Tensor) -> Tensor:
        return (x + self.second(self.b(self.first(self.a(x)).relu()))).relu()


def residual() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), Block(8), Block(8), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(8, CLASSES),
    )  # fmt: skip


class VisionTransformer(nn.Module):
    def __init__(self, size: int = 16) -> None:
        super().__init__()
        self.patch = nn.Conv2d(1, size, 2, 2)
        self.token = nn.Parameter(torch.zeros(1, 1, size))
        self.position = nn.Parameter(torch.randn(1, 17, size) * 0.02)
        self.encoder = nn.TransformerEncoderLayer(size, 2, 32, dropout=0.0, batch_first=True)
        self.head = nn.Linear(size, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.position
        return self.head(self.encoder(x)[:, 0])


class Recurrent(nn.Module):
    """A recurrent network on embedded words, packed by their lengths."""

    def __init__(self, kind, *, bidirectional: bool = False) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, 8, padding_idx=0)
        self.layer = kind(8, 16, batch_first=True, bidirectional=bidirectional)
        self.head = nn.Linear(32 if bidirectional else 16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        lengths = (x > 0).sum(1).clamp(min=1).cpu()
        words = self.embedding(x)
        packed = pack_padded_sequence(words, lengths, batch_first=True, enforce_sorted=False)
        state = self.layer(packed)[1]
        state = state[0] if isinstance(state, tuple) else state
        return self.head(torch.cat(list(state), 1))


class MeanWord(nn.Module):
    """The mean of word vectors; that of the padding word is never trained."""

    def __init__(self, *, sparse: bool = False) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, 8, padding_idx=0, sparse=sparse)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.embedding(x).sum(1) / (x > 0).sum(1, keepdim=True).clamp(min=1))


class Slices(nn.Module):
    """Layers that are slices of one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(20, 64) * 0.1)
        self.second = nn.Parameter(torch.randn(CLASSES, 16) * 0.1)

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1)
        return (x @ self.weight[:16].T).relu() @ self.second.T + x @ self.weight[16:].T


class Checkpointed(nn.Module):
    """A network whose activations are computed again in the backward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(64, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh())
        self.head = nn.Linear(16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(checkpoint(self.body, x.flatten(1), use_reentrant=False))


class Tied(nn.Module):
    """Two layers of one weight: one parameter, or two whose data are the same memory."""

    def __init__(self, *, by_data: bool = False) -> None:
        super().__init__()
        self.inner, self.outer = (nn.Linear(64, 64, bias=False) for _ in range(2))
        self.head = nn.Linear(64, CLASSES)
        if by_data:
            self.outer.weight.data = self.inner.weight.data
        else:
            self.outer.weight = self.inner.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.outer(self.inner(x.flatten(1)).relu()).relu())


class Shared(nn.Module):
    """Weights used as the sum of a shared and an own part."""

    def __init__(self) -> None:
        super().__init__()
        self.shared = nn.Parameter(torch.randn(16, 64) * 0.1)
        self.own = nn.Parameter(torch.randn(16, 64) * 0.1)
        self.head = nn.Linear(16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head((x.flatten(1) @ (self.shared + self.own).T).relu())


class Odd(nn.Module):
    """A scalar, an empty and an unused parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(64, 16), nn.Linear(16, CLASSES)
        self.scale, self.empty = nn.Parameter(torch.tensor(1.0)), nn.Parameter(torch.zeros(0, 5))
        self.unused = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head((self.body(x.flatten(1)) * self.scale).relu()) + self.empty.sum()


class Frozen(nn.Module):
    """A frozen convolution with batch normalisation that stays in evaluation mode."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.norm = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4)
        self.head = nn.Linear(144, CLASSES)
        for part in (self.body, self.norm):
            part.requires_grad_(requires_grad=False)

    def train(self, mode: bool = True) -> "Frozen":
        super().train(mode)
        self.norm.eval()
        return self

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.body(x)).relu().flatten(1))


class InFloat64(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.network = mlp().double()

    def forward(self, x: Tensor) -> Tensor:
        return self.network(x.double()).float()


def dropout() -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, CLASSES)
    )


class Lists(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.ParameterList([torch.randn(64, 16) * 0.1, torch.randn(16, 4) * 0.1])

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(x.flatten(1) @ self.weights[0]) @ self.weights[1]


MASK = torch.zeros(16, 64)
MASK[:, ::8] = 1


def masked() -> nn.Module:
    """Return a network of which a hook lets one column in eight of the first layer change."""
    model = mlp()
    with torch.no_grad():
        model[1].weight.mul_(MASK)
    model[1].weight.register_hook(lambda gradient: gradient * MASK)
    return model


class OwnNorm(nn.Module):
    """Normalises by the batch's mean and variance, in training and in tests."""

    def forward(self, x: Tensor) -> Tensor:
        mean, variance = x.mean((0, 2, 3), keepdim=True), x.var((0, 2, 3), keepdim=True)
        return (x - mean) / (variance + 1e-5).sqrt()


class RunningMean(nn.Module):
    """Subtracts a running mean, a buffer outside the state dict or made in the first pass."""

    def __init__(self, *, lazy: bool = False) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(64, 16), nn.Linear(16, CLASSES)
        if not lazy:
            self.register_buffer("mean", torch.zeros(64), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1)
        if not hasattr(self, "mean"):
            self.register_buffer("mean", torch.zeros(64))
        if self.training:
            self.mean.mul_(0.9).add_(x.detach().mean(0), alpha=0.1)
        return self.head((self.body(x) - self.mean.mean()).relu())


class Replaced(nn.Module):
    """Counts its passes in a buffer that each of them replaces."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(64, CLASSES)
        self.register_buffer("passes", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.passes = self.passes + 1
        return self.head(x.flatten(1))


class Stateful(nn.Module):
    """A recurrent network that keeps the state of the previous batch, and counts batches."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = nn.RNN(8, 16, batch_first=True), nn.Linear(16, CLASSES)
        self.hidden: Tensor | None = None
        self.seen: list[int] = []

    def forward(self, x: Tensor) -> Tensor:
        before = self.hidden
        if before is not None:
            before = before.mean(1, keepdim=True).expand(-1, len(x), -1).contiguous()
        _, state = self.layer(x[:, 0], before)
        self.hidden = state.detach()
        self.seen.append(len(x))
        return self.head(state[-1]) / len(self.seen)


class Noisy(nn.Module):
    """Draws from a global random state in every pass, in tests, too."""

    def __init__(self, draw) -> None:
        super().__init__()
        self.body, self.head, self.draw = nn.Linear(64, 16), nn.Linear(16, CLASSES), draw

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x.flatten(1)).relu() * self.draw())


class Thawing(nn.Module):
    """Trains its first layer from the fifth training pass on, or until then."""

    def __init__(self, *, freezes: bool) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(64, 16), nn.Linear(16, CLASSES)
        self.passes, self.freezes = 0, freezes
        self.body.requires_grad_(requires_grad=freezes)

    def forward(self, x: Tensor) -> Tensor:
        self.passes += self.training
        if self.passes == 5:
            self.body.requires_grad_(requires_grad=not self.freezes)
        return self.head(self.body(x.flatten(1)).relu())


CLASS_WEIGHTS = torch.tensor([20.0, 1.0, 1.0, 1.0])


def weighted_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    return functional.cross_entropy(outputs, targets, weight=CLASS_WEIGHTS)


MLP = task("mlp", mlp)
WEIGHT_NORM = task("weight-norm", lambda: mlp(parametrizations.weight_norm))
OLD_WEIGHT_NORM = task("old-weight-norm", lambda: mlp(old_weight_norm))
SPECTRAL_NORM = task("spectral-norm", lambda: mlp(parametrizations.spectral_norm))
ORTHOGONAL = task("orthogonal", lambda: mlp(parametrizations.orthogonal))
BATCH_NORM = task("batch-norm", lambda: convolutions(nn.BatchNorm2d))
GROUP_NORM = task("group-norm", lambda: convolutions(lambda n: nn.GroupNorm(2, n)))
INSTANCE_NORM = task("instance-norm", lambda: convolutions(nn.InstanceNorm2d))
RESIDUAL = task("residual", residual)
TRANSFORMER = task("transformer", VisionTransformer)
GRU = task("gru", lambda: Recurrent(nn.GRU), lines, 0.1)
LSTM = task("lstm", lambda: Recurrent(nn.LSTM, bidirectional=True), lines, 0.1)
MEAN_WORD = task("mean-word", MeanWord, lines, 0.5)
SPARSE_WORD = task("sparse-word", lambda: MeanWord(sparse=True), lines, 0.5)
SLICES = task("slices", Slices)
CHECKPOINTED = task("checkpointed", Checkpointed)
TIED = task("tied", Tied)
SHARED = task("shared", Shared)
ODD = task("odd", Odd)
FROZEN = task("frozen", Frozen)
FLOAT64 = task("float64", InFloat64)
DROPOUT = task("dropout", dropout)
LISTS = task("lists", Lists)
PARALLEL = task("parallel", lambda: nn.DataParallel(mlp()))
# Trained as they are; `benchmarks.hashes` has a line for each.
NAMES = [name for name, found in vars().items() if isinstance(found, Task)]

# Optimisations, or what clients share, could make the training of these differ from torch's.
MASKED = task("masked", masked)
TIED_DATA = task("tied-data", lambda: Tied(by_data=True))
OWN_NORM = task(
    "own-norm",
    lambda: nn.Sequential(nn.Conv2d(1, 4, 3), OwnNorm(), nn.Flatten(), nn.Linear(144, 4)),
)
SYNC_NORM = task("sync-norm", lambda: convolutions(nn.SyncBatchNorm))
WEIGHTED = task("weighted", mlp, loss=weighted_loss)
MOVING = task("moving", RunningMean)
LAZY = task("lazy", lambda: RunningMean(lazy=True))
REPLACED = task("replaced", Replaced)
STATEFUL = task("stateful", Stateful)
TORCH_NOISE = task("torch-noise", lambda: Noisy(lambda: 1 + 0.3 * torch.randn(())))
NUMPY_NOISE = task("numpy-noise", lambda: Noisy(lambda: 1 + 0.3 * np.random.randn()))  # noqa: NPY002
PYTHON_NOISE = task("python-noise", lambda: Noisy(lambda: 1 + 0.3 * random.random()))
THAWING = task("thawing", lambda: Thawing(freezes=False))
FREEZING = task("freezing", lambda: Thawing(freezes=True))
TRANSFORMED = task("transformed", mlp, random_pictures)
COMPILED = task("compiled", lambda: torch.compile(mlp(), backend="eager"))
