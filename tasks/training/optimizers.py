"""Client optimisers of torch: by name or path, with what they keep from round to round."""

import inspect
import json
import pkgutil
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn, optim

from tasks.training.sgd_update import WeightUpdate
from tasks.training.training_settings import TrainingSettings
from tasks.training.transfers import staged

# What a client keeps: an array of its optimiser by weight and name, as "0.weight/exp_avg".
Memory = dict[str, NDArray[np.generic]]


def find_optimizer(name: str) -> type[optim.Optimizer]:
    """Return a class of optimisers: one of `torch.optim` by its name, or "package.module:Class".

    Raises:
        ValueError: There is no such class, or it needs a closure.
        ImportError: There is no such module.
        AttributeError: The module has no such class.
    """
    known = {
        key.lower(): kind
        for key, kind in vars(optim).items()
        if inspect.isclass(kind)
        and issubclass(kind, optim.Optimizer)
        and kind is not optim.Optimizer
    }
    found: Any = pkgutil.resolve_name(name) if ":" in name else known.get(name.lower())
    if found is None:
        raise ValueError(f"known optimisers: {', '.join(known)}; or package.module:Class")
    if not inspect.isclass(found) or not issubclass(found, optim.Optimizer):
        raise ValueError("it is no class of torch.optim.Optimizer")
    if issubclass(found, optim.LBFGS):
        raise ValueError("it evaluates the loss several times a step, which clients do not")
    return found


def make_optimizer(
    name: str, arguments: Mapping[str, Any], weights: Sequence[Tensor], learning_rate: float
) -> optim.Optimizer:
    """Return an optimiser of these weights; as for `find_optimizer`.

    Raises:
        TypeError: It has no such argument.
        ValueError: A value is out of range.
    """
    kind: Any = find_optimizer(name)
    optimizer: optim.Optimizer = kind(weights, lr=learning_rate, **arguments)
    return optimizer


def check_optimizer(name: str, arguments: Mapping[str, Any]) -> None:
    """Take a step of one weight; raises what the optimiser raises."""
    weight = nn.Parameter(torch.zeros(2, 2))
    optimizer = make_optimizer(name, arguments, [weight], 0.1)
    weight.grad = torch.ones(2, 2)
    optimizer.step()


def check_shapes(name: str, arguments: Mapping[str, Any], shapes: Sequence[Sequence[int]]) -> None:
    """Make the optimiser of weights of these shapes; raises what it raises, as Muon for a bias."""
    weights = [nn.Parameter(torch.empty(tuple(shape), device="meta")) for shape in shapes]
    make_optimizer(name, arguments, weights, 0.1)


def default_rate(name: str) -> float | None:
    """Return an optimiser's default learning rate; None if it has none."""
    parameter = inspect.signature(find_optimizer(name)).parameters.get("lr")
    default = None if parameter is None else parameter.default
    return float(default) if isinstance(default, float | int | Tensor) else None


class OptimizerUpdate(WeightUpdate):
    """How an optimiser of torch changes weights by their gradients.

    Args:
        weights: The weights to train, by name, which are changed in place.
        settings: Its name and arguments, and FedProx's mu.
        offsets: As for `WeightUpdate`.
        memory: What it kept before (`kept`); a weight without starts from zero.
    """

    def __init__(
        self,
        weights: Mapping[str, Tensor],
        settings: TrainingSettings,
        offsets: Sequence[Tensor] = (),
        memory: Mapping[str, NDArray[np.generic]] | None = None,
    ) -> None:
        values = list(weights.values())
        super().__init__(values, settings, (), offsets)
        arguments = json.loads(settings.optimizer_args or "{}")
        rate = settings.learning_rate
        self._names = dict(zip(values, weights, strict=True))
        self._optimizer = make_optimizer(settings.optimizer, arguments, values, rate)
        for key, array in (memory or {}).items():
            name, _, part = key.rpartition("/")
            if name in weights:
                weight = weights[name]
                # Counts of steps are single numbers, and stay on the CPU, where torch has them.
                device = weight.device if array.shape else torch.device("cpu")
                kept = staged(array, device).to(device, copy=True)
                self._optimizer.state[weight][part] = kept

    @property
    def is_linear(self) -> bool:
        """Whether gradients may be added in parts: none may."""
        return False

    def add(
        self, weights: Sequence[Tensor], gradients: Sequence[Tensor], learning_rate: float
    ) -> None:
        """Change some of the weights by their gradients, which may be overwritten."""
        step = list(gradients)
        self._correct(step, weights)
        for weight, gradient in zip(weights, step, strict=True):
            weight.grad = gradient
        for group in self._optimizer.param_groups:
            group["lr"] = learning_rate
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)

    def kept(self) -> dict[str, Tensor]:
        """Return the tensors that the optimiser keeps, as "0.weight/exp_avg"."""
        return {
            f"{self._names[weight]}/{part}": value
            for weight, own in self._optimizer.state.items()
            for part, value in own.items()
            if isinstance(value, Tensor)
        }
