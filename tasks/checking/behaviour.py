"""Checks of how a task's code behaves: what adds up, what is drawn, and what passes on."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tasks.base import Task, on_device
from tasks.checking.examples import CPU, few_examples
from tasks.checking.finding import Finding, TaskError
from tasks.checking.network import Outputs, forward, is_probability
from tasks.data.dataset import Dataset
from tasks.model_arrays import ModelArrays, is_compiled, read_arrays, state_of
from tasks.training.dense_step import split_model
from tasks.training.evaluation import Parameters
from tasks.training.examples import Examples, number_of, parts_of
from tasks.training.layers import has_hooks, normalises_batches, runs_own_code
from tasks.training.parts import count_predictions, loss_count, part_count
from tasks.training.random_streams import seeded
from tasks.training.task_client import Config, TaskClient

CONFIG: Config = {"learning-rate": 0.01, "batch-size": 2, "seed": 1, "server-round": 1}
CLIENT_EXAMPLES = 12
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
    whole, parts, total = losses
    adds_up = abs(whole - parts) <= TOLERANCE * abs(whole)
    if abs(whole - total) <= TOLERANCE * abs(whole):
        text = "is a sum over the examples: a step grows with the size of its batch; give the mean"
        yield Finding("warning", "loss", text)
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


def _losses(task: Task, outputs: Outputs, targets: Any) -> tuple[float, float, float] | None:
    """Return the loss of a batch, the mean of its two parts' by their predictions, and their sum.

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
    return found[0], mean, sum(found[1:])


def check_tests(task: Task, data: Dataset, model: nn.Module) -> Iterator[Finding]:
    """Yield whether a test's outputs are drawn, or depend on the other examples of the batch."""
    inputs, _ = few_examples(task, data.train, training=False)
    model.eval()
    first, again = forward(model, inputs, seed=0), forward(model, inputs, seed=1)
    if not _same(first, again, 0.0):
        text = "two tests of one batch give two outputs: draws, which the batch's place seeds, or "
        yield Finding("note", "model", f"{text}something kept, which each batch begins without")
        return
    number = number_of(inputs)
    if not isinstance(first, Tensor) or len(first) != number:
        return
    try:
        alone = [forward(model, part) for part in parts_of(inputs, 1, number)]
    except TaskError as error:
        text = "a test of one example fails, so it depends on the others of its batch, or a last "
        yield Finding("warning", "model", f"{text}batch of one has no result ({error})")
        return
    same_shape = all(output.shape[1:] == first.shape[1:] for output in alone)
    if same_shape and not _same(torch.cat(alone), first, 1e-3):
        text = "an example's output in a test depends on the others of its batch; a test's "
        yield Finding("warning", "model", f"{text}result depends on the size of batches")


def check_loads(task: Task, data: Dataset, seed: int) -> Iterator[Finding]:
    """Yield that data and model are the same each time; TaskError where they are not."""
    if task.dataset(data.options).digest() != data.digest():
        text = (
            "gives different examples each time: draw a split with a fixed seed, or use load_cached"
        )
        raise TaskError("dataset", text)
    first, again = (_all_arrays(task.initial_model(seed)) for _ in range(2))
    for name, array in first.items():
        if not np.array_equal(array, again[name], equal_nan=True):
            text = f"gives a different {name!r} each time: draw from torch's global random state"
            raise TaskError("model", text)
    yield Finding("ok", "dataset", "every call gives the same examples, and the same model")


def check_clients(task: Task, data: Dataset, seed: int, steps: int) -> Iterator[Finding]:
    """Yield that a client's training does not depend on who trained before; else TaskError."""
    stored = Examples.stored(task, data.train, CPU, training=True)
    rows = torch.arange(min(2 * CLIENT_EXAMPLES, len(data.train)))
    parts = [replace(stored, rows=own) for own in torch.split(rows, CLIENT_EXAMPLES)]
    start = _all_arrays(task.initial_model(seed))
    config: Config = {**CONFIG, "local-steps": steps}

    def trained(*clients: int) -> Parameters:
        model = on_device(task.initial_model(seed), CPU)
        own = [TaskClient(task, model, part, partition=k) for k, part in enumerate(parts)]
        arrays = [start[name] for name in own[0].arrays.sent]
        found: Parameters = []
        for client in clients:
            try:
                found, _, _ = own[client].fit(arrays, config)
            except Exception as error:
                raise TaskError("model", f"training failed: {error}") from error
        return found

    last = len(parts) - 1
    before = [start[name] for name in ModelArrays.of(task.initial_model(seed)).sent]
    alone, after = trained(last), trained(0, last)
    if task.train is not None and all(map(np.array_equal, before, alone)):
        raise TaskError("train", "leaves the model as it was: change its own weights")
    if not all(np.array_equal(a, b, equal_nan=True) for a, b in zip(alone, after, strict=True)):
        text = "a client's training depends on who trained before in its process: keep nothing "
        raise TaskError(
            "model or loss", f"{text}in a global variable, a closure, a class or a loss"
        )
    yield Finding("ok", "model", "a client trains the same alone and after another client")


def runs_unknown_code(task: Task, model: nn.Module) -> bool:
    """Return whether training runs code that is neither torch's nor vouched for by the task."""
    return task.train is not None or (
        not task.in_parts and (runs_own_code(model) or loss_count(task.loss) is None)
    )


def _all_arrays(model: nn.Module) -> dict[str, NDArray[np.generic]]:
    return read_arrays(model, tuple(state_of(model)))


def _same(a: Outputs, b: Outputs, tolerance: float) -> bool:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return a.shape == b.shape and torch.allclose(a, b, rtol=tolerance, atol=tolerance)
    if isinstance(a, Mapping):
        return all(_same(a[key], b[key], tolerance) for key in a)
    if isinstance(a, tuple | list):
        return all(_same(x, y, tolerance) for x, y in zip(a, b, strict=True))
    return True
