"""Client optimisers of torch: by name or path, with what they keep from round to round."""

import copy
import inspect
import io
import pkgutil
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn, optim

from tasks.model_arrays import to_arrays
from tasks.training.sgd_update import GradientTerms
from tasks.training.training_settings import TrainingSettings

# What a client keeps from round to round: the momentum of each weight by its name; of an optimiser
# of torch the bytes that `torch.save` makes of its ``state_dict()``, under `STATE`.
Memory = dict[str, NDArray[np.generic]]
STATE = "state"


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


def check_optimizer(
    name: str, arguments: Mapping[str, Any], model: nn.Module, *, kept: bool = False
) -> None:
    """Take two steps on a copy of a network's trained weights; raises what the optimiser raises.

    Args:
        name: As for `find_optimizer`.
        arguments: As for `make_optimizer`.
        model: The network.
        kept: Whether the optimiser's state is to be kept from round to round.

    Raises:
        ValueError: ``kept``, and the second step is another if the optimiser is made anew before it
            and loads the ``state_dict()`` of the first.
    """
    generator = torch.Generator().manual_seed(0)
    weights = [weight.detach().clone() for weight in model.parameters() if weight.requires_grad]
    weights = [nn.Parameter(weight) for weight in weights]

    def step(optimizer: optim.Optimizer, own: Sequence[Tensor], seed: int) -> None:
        generator.manual_seed(seed)
        for weight in own:
            drawn = torch.randn(weight.shape, generator=generator)
            weight.grad = drawn.to(weight.dtype)
        optimizer.step()

    optimizer = make_optimizer(name, arguments, weights, 0.1)
    step(optimizer, weights, 1)
    if not kept:
        return
    others = copy.deepcopy(weights)
    other = make_optimizer(name, arguments, others, 0.1)
    _load(other, _saved(optimizer))
    step(optimizer, weights, 2)
    step(other, others, 2)
    if not all(map(torch.equal, weights, others)):
        raise ValueError("its state_dict() lacks a part of what it keeps")


def default_rate(name: str) -> float | None:
    """Return an optimiser's default learning rate; None if it has none."""
    parameter = inspect.signature(find_optimizer(name)).parameters.get("lr")
    default = None if parameter is None else parameter.default
    return float(default) if isinstance(default, float | int | Tensor) else None


class OptimizerUpdate:
    """The steps of an optimiser of torch, on the weights' gradients.

    Args:
        weights: The weights to train, which are changed in place.
        settings: Its name and arguments, SGD's momentum and weight decay, clipping and FedProx's
            mu.
        offsets: As for `GradientTerms`.
        memory: What it kept before (`kept`); empty or None for nothing.
    """

    def __init__(
        self,
        weights: Sequence[Tensor],
        settings: TrainingSettings,
        offsets: Sequence[Tensor] = (),
        memory: Memory | None = None,
    ) -> None:
        arguments: dict[str, Any] = {
            "momentum": settings.momentum,
            "weight_decay": settings.weight_decay,
        }
        if not settings.is_sgd:
            arguments = settings.optimizer_args.values
        self._weights, self._terms = weights, GradientTerms(weights, settings, offsets)
        rate = settings.learning_rate
        self._optimizer = make_optimizer(settings.optimizer, arguments, weights, rate)
        if memory:
            _load(self._optimizer, memory[STATE].tobytes())

    def step(self, learning_rate: float) -> None:
        """Change the weights by their ``grad``, which is cleared."""
        with torch.no_grad():
            self._terms.change_grads(self._weights)
        for group in self._optimizer.param_groups:
            group["lr"] = learning_rate
        self._optimizer.step()
        self._optimizer.zero_grad()

    def kept(self) -> Memory:
        """Return the optimiser's state; nothing if a value is not finite, which would stay so."""
        if not _is_finite(self._optimizer.state_dict()):
            return {}
        return {STATE: np.frombuffer(_saved(self._optimizer), np.uint8)}


def finite_arrays(tensors: Mapping[str, Tensor]) -> Memory:
    """Return copies of the tensors whose values are all finite: NaN would stay in the others."""
    return {name: array for name, array in to_arrays(tensors).items() if np.isfinite(array).all()}


def _saved(optimizer: optim.Optimizer) -> bytes:
    file = io.BytesIO()
    torch.save(optimizer.state_dict(), file)
    return file.getvalue()


def _load(optimizer: optim.Optimizer, data: bytes) -> None:
    state = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    optimizer.load_state_dict(state)  # moves it to the weights' device


def _is_finite(value: Any) -> bool:
    if isinstance(value, Tensor):
        return bool(value.to_dense().isfinite().all())
    parts = value.values() if isinstance(value, Mapping) else value
    return not isinstance(value, Mapping | list | tuple) or all(map(_is_finite, parts))
