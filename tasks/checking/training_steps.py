"""Checks of how a task is trained: which arrays, which code, whether batches can be split."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from tasks.base import Task
from tasks.checking.examples import CPU, few_examples
from tasks.checking.finding import Finding, TaskError
from tasks.checking.network import Outputs, forward, is_probability
from tasks.data.dataset import Dataset
from tasks.model_arrays import ModelArrays, is_compiled, read_arrays, state_of
from tasks.training.dense_step import split_model
from tasks.training.examples import number_of
from tasks.training.layers import has_hooks, normalises_batches, runs_own_code
from tasks.training.parts import count_predictions, loss_count, part_count
from tasks.training.random_streams import seeded

# Sums of float32 in another order differ by less.
TOLERANCE = 1e-5


def check_arrays(model: nn.Module) -> Iterator[Finding]:
    """Yield which arrays are trained, fixed, buffers and aliases; TaskError for those refused."""
    try:
        arrays = ModelArrays.of(model)
        read_arrays(model, arrays.names)
    except ValueError as error:
        raise TaskError("model", str(error)) from error
    state = state_of(model)

    def described(names: tuple[str, ...]) -> str:
        count = sum(state[name].numel() for name in names)
        kinds = sorted({str(state[name].dtype).removeprefix("torch.") for name in names})
        return f"{len(names)} ({count:,} entries, {', '.join(kinds)})" if names else "0"

    aliases = "".join(f"; {name} is {first}" for name, first in arrays.aliases.items())
    yield Finding(
        "ok",
        "model",
        f"trained arrays {described(arrays.trained)}, fixed {described(arrays.fixed)}, "
        f"buffers {described(arrays.buffers)}, aliases {len(arrays.aliases)}{aliases}",
    )


def check_steps(task: Task, data: Dataset, model: nn.Module) -> Iterator[Finding]:
    """Yield how steps are taken: by which code, and whether large batches may be cut."""
    hooks = [name or "the model" for name, part in model.named_modules() if has_hooks(part)]
    if hooks and not is_compiled(model):
        yield Finding("note", "model", f"hooks on {', '.join(hooks[:5])}: they run in every pass")
    elif split_model(model) is not None:
        yield Finding("ok", "model", "ends in dense layers, which use the fast step")
    if task.train is not None:
        text = "a loop of its own: the seed fixes the order of its examples and its draws; its "
        yield Finding("note", "train", f"{text}steps and optimisers are its own business")
        return
    inputs, targets = few_examples(task, data.train, training=False)
    losses = _losses(task, forward(model.eval(), inputs), targets)
    if losses is None:
        return
    whole, parts = losses
    adds_up = abs(whole - parts) <= TOLERANCE * abs(whole)
    text = f"{whole:.6g} for {number_of(inputs)} examples with random outputs, "
    text += f"{parts:.6g} from two parts of them"
    if task.in_parts and not adds_up:
        raise TaskError("in_parts", f"is True, but the loss is {text}: leave it out")
    if part_count(task, model) is not None:
        yield Finding("ok", "loss", f"{text}: large batches are split")
        return
    can_be = adds_up and not hooks and not normalises_batches(model)
    fix = (
        "; with in_parts=True, if no layer looks across examples, they are split" if can_be else ""
    )
    yield Finding("note", "loss", f"{text}: large batches stay whole{fix}")


def _losses(task: Task, outputs: Outputs, targets: Any) -> tuple[float, float] | None:
    """Return the loss of a batch, and the mean of its two parts' by their predictions.

    The outputs are random, since those of an initial model are nearly the same for all examples.
    None if the batch has no two parts.
    """
    if not isinstance(outputs, Tensor) or not isinstance(targets, Tensor):
        return None
    size = len(targets) // 3
    if len(outputs) != len(targets) or not size:
        return None
    if outputs.is_floating_point() and not is_probability(outputs):
        drawn = torch.randn(outputs.shape, generator=torch.Generator().manual_seed(0))
        outputs = (3 * drawn).to(outputs.dtype)
    places = [slice(None), slice(None, size), slice(size, None)]
    count = loss_count(task.loss) or count_predictions
    counts = [int(count(len(targets[place]), targets[place])) for place in places[1:]]
    if not all(counts):
        return None
    with torch.no_grad(), seeded(0, CPU):
        found = [float(task.loss(outputs[place], targets[place])) for place in places]
    mean = sum(loss * count for loss, count in zip(found[1:], counts, strict=True)) / sum(counts)
    return found[0], mean


def runs_unknown_code(task: Task, model: nn.Module) -> bool:
    """Return whether training runs code that is neither torch's nor vouched for by the task."""
    return task.train is not None or (
        not task.in_parts and (runs_own_code(model) or loss_count(task.loss) is None)
    )
