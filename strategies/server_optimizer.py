"""Server optimisers: turn the clients' mean update into the model's change.

S. Reddi et al.: Adaptive Federated Optimization. ICLR 2021, arXiv 2003.00295, Algorithm 2; FedAvgM:
T. H. Hsu, H. Qi, M. Brown, arXiv 1909.06335. The mean update Delta replaces the negative gradient.
With the learning rate 1 and no momentum, `SGD` leaves it unchanged.
"""

import math
from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from .registry import Decay, Part, Positive, Registry, read_part

Array = NDArray[np.float64]

NONE = "none"


class ServerOptimizer(ABC):
    """Turns the round's mean update into the change of the global model.

    It keeps its state between rounds, and is pickled with the strategy.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    @abstractmethod
    def step(self, update: Array) -> Array:
        """Return the change of the model; the update has the same shape (n,) every time."""


@dataclass
class SGD(ServerOptimizer):
    """FedAvgM: m <- momentum m + Delta; the model changes by learning_rate m.

    With Nesterov's momentum it changes by learning_rate (momentum m + Delta), the new m, as in
    `torch.optim.SGD`; DiLoCo (arXiv 2311.08105) has it on the server, AdamW on the clients.

    Args:
        learning_rate: The server's; 1 with no momentum is plain averaging.
        momentum: From 0 to below 1.
        nesterov: Whether the momentum is Nesterov's.
    """

    learning_rate: Positive = 1.0
    momentum: Decay = 0.9
    nesterov: bool = False

    def __post_init__(self) -> None:
        self._momentum: Array | float = 0.0

    def step(self, update: Array) -> Array:
        """Return learning_rate m; with Nesterov's, learning_rate (momentum m + Delta)."""
        self._momentum = self.momentum * self._momentum + update
        change = self.momentum * self._momentum + update if self.nesterov else self._momentum
        return self.learning_rate * change


@dataclass
class Adam(ServerOptimizer):
    """FedAdam: v <- beta_2 v + (1 - beta_2) Delta^2.

    m <- beta_1 m + (1 - beta_1) Delta; the model changes by learning_rate m / (sqrt(v) + tau). Both
    moments are zero at first. The learning rate is corrected for that as in Flower's FedAdam, which
    takes t + 1 for the number t of the step.

    Args:
        learning_rate: Of the server.
        beta_1: Of the first moment m, from 0 to below 1.
        beta_2: Of the second moment v, from 0 to below 1.
        tau: Added to the root: the smaller, the more adaptive.
    """

    learning_rate: Positive = 0.1
    beta_1: Decay = 0.9
    beta_2: Decay = 0.99
    tau: Positive = 1e-3

    def __post_init__(self) -> None:
        self._steps, self._first, self._second = 0, np.zeros(()), np.zeros(())

    def second_moment(self, v: Array, square: Array) -> Array:
        """Return the next v from the square of Delta."""
        return self.beta_2 * v + (1 - self.beta_2) * square

    def rate(self) -> float:
        """Return the learning rate of this step."""
        power = self._steps + 1
        return self.learning_rate * math.sqrt(1 - self.beta_2**power) / (1 - self.beta_1**power)

    def step(self, update: Array) -> Array:
        """Return learning_rate m / (sqrt(v) + tau)."""
        self._steps += 1
        self._first = self.beta_1 * self._first + (1 - self.beta_1) * update
        self._second = self.second_moment(self._second, update**2)
        return self.rate() * self._first / (np.sqrt(self._second) + self.tau)


@dataclass
class Yogi(Adam):
    """FedYogi: v <- v - (1 - beta_2) Delta^2 sign(v - Delta^2).

    The rest is `Adam`, except that the learning rate is not corrected.
    """

    learning_rate: Positive = 0.01

    def second_moment(self, v: Array, square: Array) -> Array:
        """Return the next v from the square of Delta."""
        return v - (1 - self.beta_2) * square * np.sign(v - square)

    def rate(self) -> float:
        """Return the learning rate."""
        return self.learning_rate


SERVER_OPTIMIZERS = Registry[ServerOptimizer](
    ServerOptimizer,  # type: ignore[type-abstract]
    "server optimizer",
    {
        "adam": f"{__name__}:Adam",
        "sgd": f"{__name__}:SGD",
        "yogi": f"{__name__}:Yogi",
    },
)


def build(given: Part) -> ServerOptimizer | None:
    """Return the server optimiser that a strategy's argument names; None for "none".

    Args:
        given: "none", "sgd", "adam", "yogi" or "package.module:Class", or a table with that
            name and arguments, ``{name = "adam", learning-rate = 0.01}``.

    Raises:
        ValueError, ImportError, AttributeError: As for `Registry.build`.
    """
    name, arguments = read_part("server-optimizer", given)
    if name == NONE:
        if arguments:
            raise ValueError(f"server optimizer {NONE!r} takes no arguments")
        return None
    return SERVER_OPTIMIZERS.build(name, arguments)
