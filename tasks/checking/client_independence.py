"""The check that a client's training does not depend on the clients that trained before it."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch

from tasks.base import Task
from tasks.checking.examples import CPU
from tasks.checking.finding import Finding, TaskError
from tasks.data.dataset import Dataset
from tasks.model_arrays import ModelArrays, read_arrays
from tasks.training.evaluation import Parameters
from tasks.training.examples import Examples
from tasks.training.local_training import Config, TaskClient

CONFIG: Config = {"learning-rate": 0.01, "batch-size": 2, "seed": 1, "server-round": 1}
CLIENT_EXAMPLES = 12


def check_clients(task: Task, data: Dataset, seed: int, steps: int) -> Iterator[Finding]:
    """Yield that a client's training does not depend on who trained before; else TaskError."""
    if depends_on_others(task, data, seed, steps):
        text = "a client's training depends on who trained before in its process: "
        if task.shared_model and not depends_on_others(
            replace(task, shared_model=False), data, seed, steps
        ):
            raise TaskError("shared_model", f"is True, but {text}leave it out")
        fix = "keep nothing in a global variable, a closure, a class or a loss"
        raise TaskError("model or loss", text + fix)
    yield Finding("ok", "model", "a client trains the same alone and after another client")


def depends_on_others(task: Task, data: Dataset, seed: int, steps: int) -> bool:
    """Return whether a client's training gives other numbers after another client's.

    Raises:
        TaskError: The training fails, or the task's own loop trains nothing.
    """
    stored = Examples.stored(task, data.train, CPU, training=True)
    rows = torch.arange(min(2 * CLIENT_EXAMPLES, len(data.train)))
    parts = [replace(stored, rows=own) for own in torch.split(rows, CLIENT_EXAMPLES)]
    arrays = ModelArrays.of(model := task.initial_model(seed))
    start = list(read_arrays(model, arrays.sent).values())
    config: Config = {**CONFIG, "local-steps": steps}

    def trained(*clients: int) -> Parameters:
        network = task.networks(seed, CPU)
        found: Parameters = []
        for client in clients:
            own = TaskClient(task, network, parts[client], partition=client, arrays=arrays)
            try:
                found, _, _ = own.fit(start, config)
            except Exception as error:
                raise TaskError("model", f"training failed: {error}") from error
        return found

    last = len(parts) - 1
    alone, after = trained(last), trained(0, last)
    if task.train is not None and all(map(np.array_equal, start, alone)):
        raise TaskError("train", "leaves the model as it was: change its own weights")
    pairs = zip(alone, after, strict=True)
    return not all(np.array_equal(a, b, equal_nan=True) for a, b in pairs)
