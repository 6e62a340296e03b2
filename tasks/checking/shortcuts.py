"""The checks of what a task says of itself: ``in_parts``, ``shared_model``, ``channels_last``.

Each is a shortcut of `tasks.base.Task`. It is tried next to torch's own way on the task's data:
whether the numbers are the same, and what it gains.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from tasks.base import Task
from tasks.checking.client_independence import depends_on_others
from tasks.checking.examples import CPU, few_examples
from tasks.checking.finding import Finding, TaskError
from tasks.data.dataset import Dataset
from tasks.model_arrays import ModelArrays
from tasks.training.backward import backward, count_predictions
from tasks.training.examples import number_of, parts_of
from tasks.training.optimizer_steps import take_steps, trained_weights
from tasks.training.random_streams import seeded
from tasks.training.training_settings import TrainingSettings

# Numbers by two ways may be this far apart, as a share of an array's largest entry.
TOLERANCE = 1e-3
# Arrays whose entries are below this share of all arrays' largest are noise.
NOISE = 1e-3
BATCH, STEPS, REPEATS = 10, 3, 5
LONG = 0.1  # seconds of a call that is not repeated as often
# A client's training, next to which making its network is timed: an epoch of a hundredth.
CLIENTS = 100
# What a shortcut must gain to be proposed.
GAIN = 1.15
# The share of a client's training that making its network may take without a word.
MODEL_SHARE = 0.1
SETTINGS = TrainingSettings(learning_rate=0.01)


def check_in_parts(task: Task, data: Dataset, seed: int) -> None:
    """Check that a task that says ``in_parts`` trains as torch does; TaskError else."""
    own = task.in_parts and task.train is None
    if own and (text := _difference(task, data, seed)) is not None:
        raise TaskError("in_parts", f"is True, but {text}: leave it out")


def check_shortcuts(task: Task, data: Dataset, seed: int) -> Iterator[Finding]:
    """Yield for each shortcut what it gains, or why it cannot be taken.

    Raises:
        TaskError: The task says that one may be taken, and it fails or gives other numbers.
    """
    check_in_parts(task, data, seed)
    if task.train is not None:
        text = "a loop of its own: the seed fixes the order of its examples and its draws; its "
        yield Finding("note", "train", f"{text}steps and optimisers are its own business")
        return
    step = _step_seconds(task, data, seed)
    yield from _in_parts(task, data, seed, step)
    yield from _channels_last(task, data, seed, step)
    yield from _shared_model(task, data, seed, step)


def _in_parts(task: Task, data: Dataset, seed: int, step: float) -> Iterator[Finding]:
    if not task.in_parts and (text := _difference(task, data, seed)) is not None:
        yield Finding("note", "in_parts", f"cannot be said: {text}")
        return
    other = _step_seconds(replace(task, in_parts=not task.in_parts), data, seed)
    yield _gained("in_parts", task.in_parts, step, other, "torch's own steps")


def _channels_last(task: Task, data: Dataset, seed: int, step: float) -> Iterator[Finding]:
    inputs, _ = few_examples(task, data.train, training=False)
    kernels = (weight.dim() == 4 for weight in task.network(seed, CPU).parameters())
    if not isinstance(inputs, Tensor) or inputs.dim() != 4 or not any(kernels):
        return
    name, other = "channels_last", replace(task, channels_last=not task.channels_last)
    try:
        apart = _apart(*(_gradients(way, data, seed) for way in (task, other)))
        seconds = _step_seconds(other, data, seed)
    except TaskError as error:  # as of a view after a convolution
        if task.channels_last:
            raise
        yield Finding("note", name, f"would not work: {error}")
        return
    if apart is None:
        yield _gained(name, task.channels_last, step, seconds, "torch's own layout")
    elif task.channels_last:
        yield Finding("warning", name, f"is True, and changes {apart}")


def _shared_model(task: Task, data: Dataset, seed: int, step: float) -> Iterator[Finding]:
    """Yield what one network for all clients gains; `check_clients` finds what it breaks."""
    made = _seconds(lambda: task.network(seed, CPU))
    steps = max(len(data.train) // CLIENTS // BATCH, 1)
    text = f"{made * 1e3:.2g} ms to make a network, {steps * step * 1e3:.2g} ms to train it on "
    text += f"{steps * BATCH} examples"
    if task.shared_model or made < MODEL_SHARE * steps * step:
        yield Finding("ok", "shared_model", text)
    elif depends_on_others(replace(task, shared_model=True), data, seed, STEPS):
        yield Finding("note", "shared_model", f"{text}; one network for all would give others")
    else:
        may = "one network gives two clients the same numbers: you may say shared_model=True"
        yield Finding("note", "shared_model", f"{text}; {may}")


def _gained(name: str, said: bool, own: float, other: float, plain: str) -> Finding:
    """Return what the shortcut gains, by the seconds of the task's own way and of the other."""
    gain = other / own if said else own / other
    text = f"the same numbers as {plain}, {gain:.1f} times as fast"
    may = f": you may say {name}=True" if not said and gain >= GAIN else ""
    return Finding("note" if may else "ok", name, text + may)


def _difference(task: Task, data: Dataset, seed: int) -> str | None:
    """Return how ``in_parts`` changes gradients or steps; None if it does not."""
    whole = _gradients(task, data, seed)
    if (apart := _apart(whole, _gradients(task, data, seed, cut=True))) is not None:
        if _apart(whole, _gradients(task, data, seed, draws=1)) is not None:
            return "training draws random numbers, so cut and whole batches cannot be compared"
        return f"cutting a batch changes {apart}"
    if type(task.network(seed, CPU)) is not nn.Sequential:  # only there steps are others
        return None
    expected = {name: -SETTINGS.learning_rate * gradient for name, gradient in whole.items()}
    apart = _apart(expected, _change(replace(task, in_parts=True), data, seed))
    return None if apart is None else f"the fast steps change {apart}"


def _gradients(
    task: Task, data: Dataset, seed: int, *, cut: bool = False, draws: int = 0
) -> dict[str, Tensor]:
    """Return the gradients of a batch, by name; those of its parts where it is cut."""
    inputs, targets = few_examples(task, data.train, training=False)
    model, number = _without_dropout(task.network(seed, CPU)), number_of(inputs)
    parts, whole = iter([(inputs, targets)]), None
    if cut:
        whole = int(count_predictions(number, targets))
        size = max(number // 3, 1)
        split = (parts_of(values, size, number) for values in (inputs, targets))
        parts = zip(*split, strict=True)
    weights = trained_weights(model, ModelArrays.of(model))
    with _failing(), seeded(draws, CPU):
        backward(model, task.loss, parts, whole)
    return {name: w.grad.to_dense() for name, w in weights.items() if w.grad is not None}


def _change(task: Task, data: Dataset, seed: int) -> dict[str, Tensor]:
    """Return how a step of SGD on the batch of `_gradients` changes the weights, by name."""
    model = _without_dropout(task.network(seed, CPU))
    weights = trained_weights(model, ModelArrays.of(model))
    before = {name: weight.detach().clone() for name, weight in weights.items()}
    _take_steps(task, model, [few_examples(task, data.train, training=False)])
    return {name: weights[name].detach() - start for name, start in before.items()}


def _take_steps(task: Task, model: nn.Module, batches: Sequence[tuple[Any, Any]]) -> None:
    rates = SETTINGS.rates(len(batches))
    with _failing(), seeded(0, CPU):
        take_steps(task, model, ModelArrays.of(model), batches, rates, SETTINGS)


def _step_seconds(task: Task, data: Dataset, seed: int) -> float:
    """Return the seconds of a step."""
    rows = torch.arange(len(data.train))[: BATCH * STEPS]
    inputs, targets = few_examples(task, data.train, training=False, rows=rows)
    parts = (parts_of(v, BATCH, len(rows)) for v in (inputs, targets))
    model, batches = task.network(seed, CPU), list(zip(*parts, strict=True))
    return _seconds(lambda: _take_steps(task, model, batches)) / len(batches)


def _seconds(call: Callable[[], object]) -> float:
    """Return the seconds of a call, the least of some: of two if they take long."""
    found: list[float] = []  # the first may import what torch needs
    while len(found) < 2 or (len(found) < REPEATS and found[-1] < LONG):
        started = time.perf_counter()
        call()
        found.append(time.perf_counter() - started)
    return min(found)


def _without_dropout(model: nn.Module) -> nn.Module:
    for module in model.modules():
        if isinstance(module, nn.modules.dropout._DropoutNd):
            module.p = 0.0  # its draws differ for a batch and its parts
    return model.train()


@contextmanager
def _failing() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise TaskError("model", f"training failed: {error}") from error


def _apart(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> str | None:
    """Return the first array in which two differ, and by how much; None if they do not."""
    largest = max((float(value.abs().max()) for value in one.values() if value.numel()), default=0)
    for name, value in one.items():
        if not value.numel() or name not in other:
            continue
        scale = max(float(value.abs().max()), NOISE * largest)
        if not (apart := float((value - other[name]).abs().max())) <= TOLERANCE * scale:
            return f"{name!r} by {apart / scale:.2g} of its largest entry"
    return None
