"""`Trial`: what every check is given, a task with its data, of which it tries a few examples."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tasks.base import Task
from tasks.checking import TaskError, calling
from tasks.data.dataset import Dataset, Split, leaves, map_leaves
from tasks.data.map_style import MapStyleSplit
from tasks.model_arrays import ModelArrays
from tasks.training.examples import CPU, call_model
from tasks.training.random_streams import seeded

FEW = 8


@dataclass(frozen=True)
class Trial:
    """A task that is checked.

    Attributes:
        task: The task.
        data: Its data.
        seed: Of the initial model.
    """

    task: Task
    data: Dataset
    seed: int

    @cached_property
    def initial(self) -> nn.Module:
        """The initial model, to be looked at only."""
        return self.task.initial_model(self.seed)

    @cached_property
    def arrays(self) -> ModelArrays:
        """The classes of the model's arrays."""
        return ModelArrays.of(self.initial)

    @property
    def tested(self) -> Split:
        """The test examples; where there are none, those for training."""
        return self.data.test if len(self.data.test) else self.data.train

    def saying(self, **attributes: Any) -> "Trial":
        """Return the trial of a task with other attributes."""
        return replace(self, task=replace(self.task, **attributes))

    def network(self) -> nn.Module:
        """Return a new network with the initial weights, in training mode."""
        return self.task.network(self.seed, CPU)

    def few(
        self, split: Split, *, training: bool = False, seed: int = 0, rows: Tensor | None = None
    ) -> tuple[Any, Any]:
        """Return the prepared inputs and the targets of some examples, by default of `few_rows`.

        What is drawn has the seed.

        Raises:
            TaskError: One cannot be read, or ``prepare`` or ``augment`` failed, or did not return a
                tensor of them.
        """
        rows = few_rows(split) if rows is None else rows
        name = "augment" if training and self.task.augment is not None else "prepare"
        kind = f"{len(rows)} inputs, {kind_of(split)}"
        with calling(name, f"for {kind}"), seeded(seed, CPU):
            stored = self.task.examples(split, CPU, training=training)
            inputs, targets = replace(stored, rows=rows).slice(0, len(rows))
        several = [isinstance(leaf, Tensor) and len(leaf) == len(rows) for leaf in leaves(inputs)]
        if not several or not all(several):
            text = f"returned {described(inputs)} for {kind}: return a tensor of as many inputs"
            raise TaskError(name, f"{text}, or a tuple or dictionary of such")
        return inputs, targets


def few_rows(split: Split) -> Tensor:
    """Return `FEW` rows from the whole split, those with the least and the largest target first."""
    extremes = []
    if isinstance(split.targets, np.ndarray):
        flat = split.targets.reshape(len(split), -1)
        extremes = [int(flat.min(axis=1).argmin()), int(flat.max(axis=1).argmax())]
    others = np.linspace(0, len(split) - 1, FEW - len(extremes), dtype=int)
    return torch.tensor([*extremes, *others][: len(split)])


def kind_of(split: Split) -> str:
    """Return dtype and shape of an example's inputs, as stored."""
    if isinstance(split, MapStyleSplit):
        return "read one by one"
    return described(map_leaves(lambda array: array[0], split.inputs))


def forward(model: nn.Module, inputs: Any) -> Any:
    """Return the model's outputs; TaskError where it fails."""
    grad = torch.set_grad_enabled(model.training)
    with calling("model", f"for inputs {described(inputs)}"), seeded(0, CPU), grad:
        return call_model(model, inputs)


def described(value: Any) -> str:
    """Return the dtype and shape of an array or a tensor, of each in a dictionary, or the kind."""
    if isinstance(value, dict):
        return ", ".join(f"{name} {described(part)}" for name, part in value.items())
    if isinstance(value, Tensor | np.ndarray | np.generic):
        return f"{str(value.dtype).removeprefix('torch.')} {tuple(value.shape)}"
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of {len(value)}"
    return "none" if value is None else f"a {type(value).__name__}"


def kinds_of(outputs: Any, targets: Any) -> str:
    """Return what outputs and targets are."""
    return f"outputs {described(outputs)} and targets {described(targets)}"


def is_probability(values: Tensor) -> bool:
    """Return whether all values are from 0 to 1."""
    return bool(((values >= 0) & (values <= 1)).all())


def same(a: Any, b: Any, tolerance: float = 0.0) -> bool:
    """Return whether two values have the same tensors, up to a tolerance; NaN is NaN."""
    return all(
        one.shape == other.shape
        and torch.allclose(one, other, rtol=tolerance, atol=tolerance, equal_nan=True)
        for one, other in zip(leaves(a), leaves(b), strict=True)
        if isinstance(one, Tensor)
    )


def copies(value: Any) -> tuple[Any, ...]:
    """Return a copy of each tensor of a value, and what is no tensor as it is."""
    return tuple(leaf.clone() if isinstance(leaf, Tensor) else leaf for leaf in leaves(value))
