"""Checks of the network: its arrays, its tests, and that clients do not depend on each other."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from tasks.checking import Finding, TaskError
from tasks.checking.trial import CPU, Trial, forward, same
from tasks.model_arrays import Arrays, ModelArrays, read_arrays, state_of
from tasks.training.examples import number_of, parts_of
from tasks.training.local_training import TaskClient
from tasks.training.optimizers import check_optimizer
from tasks.training.training_settings import TrainingSettings

CLIENT_EXAMPLES = 12
# Steps of a client; some networks change what they do once they have seen a number of batches.
STEPS, MANY_STEPS = 3, 25


def check_arrays(trial: Trial) -> Iterator[Finding]:
    """Yield which arrays are trained, fixed, buffers and aliases.

    Raises:
        TaskError: An array cannot be sent, or the optimiser cannot train them.
    """
    task, model = trial.task, trial.task.initial_model(trial.seed)
    try:
        arrays = ModelArrays.of(model)
        read_arrays(model, arrays.names)
    except ValueError as error:
        raise TaskError("model", str(error)) from error
    try:
        check_optimizer(task.optimizer, task.optimizer_args, model)
    except Exception as error:
        raise TaskError("optimizer", f"{task.optimizer}: {error}") from error
    state = state_of(model)

    def described(names: tuple[str, ...]) -> str:
        count = sum(state[name].numel() for name in names)
        kinds = sorted({str(state[name].dtype).removeprefix("torch.") for name in names})
        return f"{len(names)} ({count:,} entries, {', '.join(kinds)})" if names else "0"

    aliases = "".join(f"; {name} is {first}" for name, first in arrays.aliases.items())
    text = f"trained arrays {described(arrays.trained)}, fixed {described(arrays.fixed)}, "
    text += f"buffers {described(arrays.buffers)}, aliases {len(arrays.aliases)}{aliases}"
    yield Finding("ok", "model", text)


def check_tests(trial: Trial) -> Iterator[Finding]:
    """Yield whether a test's outputs are drawn, or depend on the other examples of the batch."""
    if not len(trial.data.test):
        raise TaskError("dataset", "there are no test examples, which every evaluation needs")
    inputs, _ = trial.few(trial.data.train)
    model = trial.network().eval()
    first = forward(model, inputs)
    if not same(first, forward(model, inputs, seed=1)):
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
    if same_shape and not same(torch.cat(alone), first, 1e-3):
        text = "an example's output in a test depends on the others of its batch; a test's "
        yield Finding("warning", "model", f"{text}result depends on the size of batches")


def check_clients(trial: Trial, steps: int = MANY_STEPS) -> Iterator[Finding]:
    """Yield that a client's training does not depend on who trained before; else TaskError."""
    if depends_on_others(trial, steps):
        text = "a client's training depends on who trained before in its process: "
        if trial.task.shared_model and not depends_on_others(
            trial.saying(shared_model=False), steps
        ):
            raise TaskError("shared_model", f"is True, but {text}leave it out")
        fix = "keep nothing in a global variable, a closure, a class or a loss"
        raise TaskError("model or loss", text + fix)
    yield Finding("ok", "model", "a client trains the same alone and after another client")


def depends_on_others(trial: Trial, steps: int = STEPS) -> bool:
    """Return whether a client's training gives other numbers after another client's.

    Raises:
        TaskError: The training fails, or the task's own loop trains nothing.
    """
    task, train = trial.task, trial.data.train
    stored = task.examples(train, CPU, training=True)
    rows = torch.arange(min(2 * CLIENT_EXAMPLES, len(train)))
    parts = [replace(stored, rows=own) for own in torch.split(rows, CLIENT_EXAMPLES)]
    arrays = ModelArrays.of(model := task.initial_model(trial.seed))
    start = read_arrays(model, arrays.sent)
    settings = TrainingSettings(
        learning_rate=0.01, batch_size=2, local_steps=steps, seed=1, server_round=1
    )

    def trained(*clients: int) -> Arrays:
        network = task.networks(trial.seed, CPU)
        found: Arrays = {}
        for client in clients:
            own = TaskClient(task, network, parts[client], partition=client, arrays=arrays)
            try:
                found = own.train(start, settings).arrays
            except Exception as error:
                raise TaskError("model", f"training failed: {error}") from error
        return found

    last = len(parts) - 1
    alone, after = trained(last), trained(0, last)
    if task.train is not None and all(np.array_equal(start[name], alone[name]) for name in start):
        raise TaskError("train", "leaves the model as it was: change its own weights")
    return not all(np.array_equal(alone[name], after[name], equal_nan=True) for name in start)
