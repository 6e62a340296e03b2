"""The checks of what a task says of itself: ``in_parts``, ``shared_model``, ``channels_last``.

Each is a shortcut of `tasks.base.Task`. It is tried next to torch's own way on the task's data:
whether the numbers are the same, and what it gains.
"""

import timeit
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from tasks.checking import Finding, TaskError
from tasks.checking.network import depends_on_others
from tasks.checking.trial import CPU, FEW, Trial
from tasks.model_arrays import ModelArrays
from tasks.training.examples import parts_of
from tasks.training.optimizer_steps import take_steps, trained_weights
from tasks.training.random_streams import seeded
from tasks.training.training_settings import TrainingSettings

# Numbers by two ways may be this far apart, as a share of an array's largest entry.
TOLERANCE = 1e-3
# Arrays whose entries are below this share of all arrays' largest are noise.
NOISE = 1e-3
BATCH, STEPS, REPEATS = 10, 3, 3
# A client's training, next to which making its network is timed: an epoch of a hundredth.
CLIENTS = 100
# What a shortcut must gain to be proposed.
GAIN = 1.15
# The share of a client's training that making its network may take without a word.
MODEL_SHARE = 0.1
# Of steps that are timed, and of one whose changes are compared, which rounding must not hide.
RATE, LARGE_RATE = 0.01, 100.0


def check_in_parts(trial: Trial) -> None:
    """Check that a task that says ``in_parts`` trains as torch does; TaskError else."""
    own = trial.task.in_parts and trial.task.train is None
    if own and (text := _parts_differ(trial)) is not None:
        raise TaskError("in_parts", f"is True, but {text}: leave it out")


def check_shortcuts(trial: Trial) -> Iterator[Finding]:
    """Yield for each shortcut what it gains, or why it cannot be taken.

    Raises:
        TaskError: The task says that one may be taken, and it fails or gives other numbers.
    """
    if trial.task.train is not None:
        text = "a loop of its own: the seed fixes the order of its examples and its draws; its "
        yield Finding("note", "train", f"{text}steps and optimisers are its own business")
        return
    seconds = _step_seconds(trial)
    yield _compared(trial, seconds, "in_parts", _parts_differ)
    inputs, _ = trial.few(trial.data.train)
    is_image = isinstance(inputs, Tensor) and inputs.dim() == 4
    if is_image and any(weight.dim() == 4 for weight in trial.network().parameters()):
        yield _compared(trial, seconds, "channels_last", _layout_differs)
    yield _shared_model(trial, seconds)


def _compared(
    trial: Trial, seconds: float, name: str, differs: Callable[[Trial], str | None]
) -> Finding:
    """Return what a shortcut gains, or why it cannot be taken.

    Args:
        trial: The task.
        seconds: Of a step by the task's own way.
        name: The shortcut.
        differs: Returns how it changes the numbers; None if it does not.

    Raises:
        TaskError: The task says it, and it changes the numbers.
    """
    said = getattr(trial.task, name)
    if (text := differs(trial)) is not None:
        if said:
            raise TaskError(name, f"is True, but {text}: leave it out")
        return Finding("note", name, f"cannot be said: {text}")
    other = _step_seconds(trial.saying(**{name: not said}))
    gain = other / seconds if said else seconds / other
    may = f": you may say {name}=True" if not said and gain >= GAIN else ""
    text = f"the same numbers as torch's own steps, {gain:.1f} times as fast{may}"
    return Finding("note" if may else "ok", name, text)


def _shared_model(trial: Trial, step: float) -> Finding:
    """Return what one network for all clients gains; `check_clients` finds what it breaks."""
    made = _seconds(trial.network)
    steps = max(len(trial.data.train) // CLIENTS // BATCH, 1)
    text = f"{made * 1e3:.2g} ms to make a network, {steps * step * 1e3:.2g} ms to train it on "
    text += f"{steps * BATCH} examples"
    if trial.task.shared_model or made < MODEL_SHARE * steps * step:
        return Finding("ok", "shared_model", text)
    if depends_on_others(trial.saying(shared_model=True)):
        return Finding("note", "shared_model", f"{text}; one network for all would give others")
    may = "one network gives two clients the same numbers: you may say shared_model=True"
    return Finding("note", "shared_model", f"{text}; {may}")


def _layout_differs(trial: Trial) -> str | None:
    """Return how ``channels_last`` changes a step; None if it does not."""
    try:
        apart = _apart(*(_step(trial.saying(channels_last=own)) for own in (False, True)))
    except TaskError as error:  # as of a view after a convolution
        return str(error)
    return None if apart is None else f"it changes {apart}"


def _parts_differ(trial: Trial) -> str | None:
    """Return how ``in_parts`` changes a step, of a cut batch or of a whole one; None if not."""
    plain, fast = trial.saying(in_parts=False), trial.saying(in_parts=True)
    whole, third = _step(plain), max(FEW // 3, 1)
    if (apart := _apart(whole, _step(fast, part_size=third))) is not None:
        if _apart(whole, _step(plain, draws=1)) is not None:
            return "training draws random numbers, so cut and whole batches cannot be compared"
        return f"cutting a batch changes {apart}"
    if type(trial.network()) is not nn.Sequential:  # only there other steps are taken
        return None
    apart = _apart(whole, _step(fast))
    return None if apart is None else f"the fast steps change {apart}"


def _step(trial: Trial, *, part_size: int = 0, draws: int = 0) -> dict[str, Tensor]:
    """Return how a step of SGD changes the weights, by name."""
    model = trial.network()
    for module in model.modules():
        if isinstance(module, nn.modules.dropout._DropoutNd):
            module.p = 0.0  # its draws differ for a batch and its parts
    weights = trained_weights(model, ModelArrays.of(model))
    before = {name: weight.detach().clone() for name, weight in weights.items()}
    _take_steps(trial, model, [trial.few(trial.data.train)], LARGE_RATE, part_size, draws)
    return {name: weights[name].detach() - start for name, start in before.items()}


def _take_steps(
    trial: Trial,
    model: nn.Module,
    batches: Sequence[tuple[Any, Any]],
    rate: float,
    part_size: int = 0,
    draws: int = 0,
) -> None:
    settings = TrainingSettings(learning_rate=rate)
    arrays, rates = ModelArrays.of(model), settings.rates(len(batches))
    try:
        with seeded(draws, CPU):
            take_steps(trial.task, model, arrays, batches, rates, settings, part_size=part_size)
    except Exception as error:
        raise TaskError("model", f"training failed: {error}") from error


def _step_seconds(trial: Trial) -> float:
    """Return the seconds of a step."""
    rows = torch.arange(len(trial.data.train))[: BATCH * STEPS]
    inputs, targets = trial.few(trial.data.train, rows=rows)
    parts = (parts_of(values, BATCH, len(rows)) for values in (inputs, targets))
    model, batches = trial.network(), list(zip(*parts, strict=True))
    return _seconds(lambda: _take_steps(trial, model, batches, RATE)) / len(batches)


def _seconds(call: Callable[[], object]) -> float:
    """Return the seconds of a call, the least of some: the first may import what torch needs."""
    return min(timeit.repeat(call, number=1, repeat=REPEATS))


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
