"""One client's steps of SGD as data, for whoever does them for several clients at once.

`TaskClient.fit` takes its steps itself, unless `joint_trainer` is set: then it prepares them, hands
them over as a `LocalSGD`, and gets a `Trained` back. This module says what is handed over;
`tasks.vectorised` does the steps.
"""

from collections.abc import Callable, Iterable
from contextvars import ContextVar
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tasks.base import Task
from tasks.examples import Examples


@dataclass(frozen=True)
class Settings:
    """The settings of SGD: eta, momentum m, FedProx's mu, and weight decay; 0 means none."""

    learning_rate: float
    momentum: float
    proximal_mu: float
    weight_decay: float


@dataclass(frozen=True)
class Batches:
    """The prepared examples of a client's steps.

    Attributes:
        inputs: Prepared inputs, (m, ...).
        targets: Their targets, (m, ...).
        first: Which row each step's batch begins at, int64 (steps,), on the CPU.
        size: How many rows each step's batch has, int64 (steps,), on the CPU.
    """

    inputs: Tensor
    targets: Tensor
    first: Tensor
    size: Tensor

    @property
    def steps(self) -> int:
        """How many steps there are, one a batch."""
        return len(self.first)

    @classmethod
    def prepare(cls, examples: Examples, starts: Iterable[int], size: int) -> "Batches":
        """Return the batches of ``size`` consecutive examples that begin at ``starts``.

        Prepared examples are kept once, however often they are used. Those that are prepared on
        use, hence augmented anew each time, are prepared here, for all steps and in their order.
        """
        if examples.prepare is None:
            inputs, targets = examples.slice(0, len(examples))
            first = torch.tensor(list(starts))
            return cls(inputs, targets, first, (len(examples) - first).clamp_max(size))
        pairs = [examples.slice(start, start + size) for start in starts]
        sizes = torch.tensor([len(targets) for _, targets in pairs])
        inputs, targets = (torch.cat(parts) for parts in zip(*pairs, strict=True))
        return cls(inputs, targets, sizes.cumsum(0) - sizes, sizes)


@dataclass(frozen=True)
class LocalSGD:
    """One client's local training, ready to be done.

    Attributes:
        task: The learning problem.
        model: The network. Its weights are not used, and clients that are trained together have
            the same one.
        settings: Of SGD.
        batches: One batch a step.
        state: Copies of the model's arrays to start with, by name. Who trains empties it, for the
            copies of many clients take much memory.
        momentum: The momentum buffers to start with, by name, zero for parameters not in it.
    """

    task: Task
    model: nn.Module
    settings: Settings
    batches: Batches
    state: dict[str, Tensor]
    momentum: dict[str, NDArray[np.generic]]


@dataclass(frozen=True)
class Trained:
    """What a client's local training gave.

    Attributes:
        state: The model's arrays by name, trained.
        momentum: The momentum buffers by name; none without momentum.
        loss: The mean of the batches' losses.
    """

    state: dict[str, NDArray[np.generic]]
    momentum: dict[str, NDArray[np.generic]]
    loss: float


# What `TaskClient.fit` hands its steps to, in the current context; None: it takes them itself.
joint_trainer: ContextVar[Callable[[LocalSGD], Trained] | None] = ContextVar(
    "joint_trainer", default=None
)
