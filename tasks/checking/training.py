"""Checks of training: clients of one process, and what shortcuts change and gain.

Each of ``in_parts``, ``channels_last`` and ``shared_model`` is a shortcut of `tasks.base.Task`. It
is tried next to torch's own way on the task's data.
"""

import timeit
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tasks.checking import Finding, TaskError, calling
from tasks.checking.trial import FEW, Trial, few_rows
from tasks.model_arrays import read_arrays
from tasks.training.examples import CPU, count_predictions, number_of, parts_of
from tasks.training.local_training import TaskClient
from tasks.training.optimizer_steps import backward, trained_weights
from tasks.training.random_streams import seeded
from tasks.training.training_settings import TrainingSettings

# How arrays change, by name.
Changes = dict[str, NDArray[Any]]
# Steps of a client; some networks change what they do once they have seen a number of batches.
STEPS, MANY_STEPS = 3, 25
# One step whose changes are large next to the weights, so that rounding does not hide them.
LARGE_STEP = TrainingSettings(learning_rate=100.0, batch_size=0, local_steps=1)
# Numbers by two ways may be this far apart, as a share of an array's largest entry; entries below
# the second share of all arrays' largest are noise.
TOLERANCE, NOISE = 1e-3, 1e-3
# Steps that are timed, and how often: the first may import what torch needs.
TIMED, REPEATS = TrainingSettings(learning_rate=0.01, batch_size=10, local_steps=3), 4
# A client whose time is compared has one of so many parts of the examples, and an epoch.
CLIENTS = 100
GAIN = 1.1  # what a shortcut must gain to be proposed


def check_clients(trial: Trial, steps: int = MANY_STEPS) -> Iterator[Finding]:
    """Yield that a client's training does not depend on who trained before; else TaskError."""
    if depends_on_others(trial, steps):
        text = "a client's training depends on who trained before in its process: "
        alone = trial.saying(shared_model=False)
        if trial.task.shared_model and not depends_on_others(alone, steps):
            raise TaskError("shared_model", f"is True, but {text}leave it out")
        fix = "keep nothing in a global variable, a closure, a class or a loss"
        raise TaskError("model or loss", text + fix)
    yield Finding("ok", "model", "a client trains the same alone and after another client")


def check_shortcuts(trial: Trial) -> Iterator[Finding]:
    """Yield for each shortcut what it gains, or why it cannot be taken.

    Raises:
        TaskError: The task says that one may be taken, and it fails or gives other numbers.
    """
    if trial.task.train is not None:
        text = "a loop of its own: the seed fixes the order of its examples and its draws; its "
        yield Finding("note", "train", f"{text}steps and optimisers are its own business")
        return
    yield _compared(trial, "in_parts")
    yield _compared(trial, "shared_model")
    inputs, _ = trial.few(trial.data.train)
    is_image = isinstance(inputs, Tensor) and inputs.dim() == 4
    if is_image and any(weight.dim() == 4 for weight in trial.network().parameters()):
        yield _compared(trial, "channels_last")


def depends_on_others(trial: Trial, steps: int = STEPS) -> bool:
    """Return whether a client's training gives other numbers after another client's."""
    settings = TrainingSettings(learning_rate=0.01, batch_size=2, local_steps=steps, server_round=1)
    alone, after = (_changes(trial, settings, *clients) for clients in ((0,), (1, 0)))
    if trial.task.train is not None and not any(change.any() for change in alone.values()):
        raise TaskError("train", "leaves the model as it was: change its own weights")
    return not all(np.array_equal(alone[name], after[name], equal_nan=True) for name in alone)


def _compared(trial: Trial, name: str) -> Finding:
    """Return what a shortcut gains, or how it changes the numbers, as for `difference`."""
    if apart := difference(trial, name):
        return Finding("note", name, f"cannot be said: {apart}")
    slow, fast = (_client_seconds(trial.saying(**{name: own})) for own in (False, True))
    is_gain = not getattr(trial.task, name) and slow >= GAIN * fast
    may = f": you may say {name}=True" if is_gain else ""
    text = f"the same numbers as torch's own steps, {slow / fast:.1f} times as fast{may}"
    return Finding("note" if is_gain else "ok", name, text)


def difference(trial: Trial, name: str) -> str:
    """Return how a shortcut changes the numbers; empty if it does not.

    Raises:
        TaskError: It does, and the task says that it may be taken.
    """
    if name == "shared_model":  # said, it is an error of `check_clients`
        differs = not trial.task.shared_model and depends_on_others(trial.saying(shared_model=True))
        return "a client's training would depend on who trained before" if differs else ""
    try:
        plain, fast = (
            _changes(trial.saying(**{name: own}), LARGE_STEP, 0) for own in (False, True)
        )
        weights = {name: plain[name] for name in trial.arrays.trained}
        found = [("its steps change", _apart(weights, fast))]
        if name == "in_parts":
            whole, cut = (_gradient(trial, size) for size in (FEW, FEW // 3))
            found.insert(0, ("cutting a batch changes", _apart(whole, cut)))
        text = next((f"{what} {apart}" for what, apart in found if apart), "")
    except TaskError as error:  # as of a view after a convolution in channels-last layout
        text = str(error)
    if text and getattr(trial.task, name):
        raise TaskError(name, f"is True, but {text}: leave it out")
    return text


def _changes(trial: Trial, settings: TrainingSettings, *clients: int) -> Changes:
    """Return how the last of some clients of a process changes the weights, and its buffers.

    Raises:
        TaskError: The training fails.
    """
    network = trial.task.networks(trial.seed, CPU)
    start: Changes = read_arrays(trial.network(), trial.arrays.sent)
    found = start
    for number in clients:
        client = _client(trial, few_rows(trial.data.train), network, number)
        with calling("model", "in training"):
            found = client.train(start, settings).arrays
    return found | {name: found[name] - start[name] for name in trial.arrays.trained}


def _client(
    trial: Trial, rows: Tensor, network: Callable[[], nn.Module], number: int = 0
) -> TaskClient:
    """Return a client that has some of the training examples."""
    examples = replace(trial.task.examples(trial.data.train, CPU, training=True), rows=rows)
    return TaskClient(trial.task, network, examples, partition=number, arrays=trial.arrays)


def _gradient(trial: Trial, size: int) -> Changes:
    """Return the gradient of a batch in parts of some size, without dropout."""
    model = trial.network()
    for module in model.modules():
        if isinstance(module, nn.modules.dropout._DropoutNd):
            module.p = 0.0  # its draws differ for a batch and its parts
    inputs, targets = trial.few(trial.data.train)
    number = number_of(inputs)
    parts = zip(*(parts_of(values, size, number) for values in (inputs, targets)), strict=True)
    whole = count_predictions(number, targets)
    with calling("model", "in training"), seeded(0, CPU):
        backward(trial.task, model, parts, LARGE_STEP, whole)
    found = trained_weights(model, trial.arrays).items()
    return {name: w.grad.to_dense().double().numpy() for name, w in found if w.grad is not None}


def _apart(one: Changes, other: Changes) -> str:
    """Return the first array in which two differ, and by how much; empty if they do not."""
    sizes = {name: float(np.abs(value).max()) for name, value in one.items() if value.size}
    for name, size in sizes.items():
        scale = max(size, NOISE * max(sizes.values()))
        if not (apart := float(np.abs(one[name] - other[name]).max())) <= TOLERANCE * scale:
            return f"{name!r} by {apart / scale:.2g} of its largest entry"
    return ""


def _client_seconds(trial: Trial) -> float:
    """Return the seconds of a client that makes its network, unless that is shared, and trains it.

    Of each the least of some times: the first may import what torch needs.
    """
    count, networks = len(trial.data.train), list[nn.Module]()
    rows = torch.arange(count)[: TIMED.batch_size * TIMED.local_steps]
    client = _client(trial, rows, networks.pop)
    start = read_arrays(trial.network(), trial.arrays.sent)

    def make() -> None:
        networks.append(trial.network())

    with calling("model", "in training"):
        made = min(timeit.repeat(make, number=1, repeat=REPEATS))
        trained = min(timeit.repeat(lambda: client.train(start, TIMED), number=1, repeat=REPEATS))
    steps = max(count // CLIENTS // TIMED.batch_size, 1)
    return (0.0 if trial.task.shared_model else made) + steps * trained / TIMED.local_steps
