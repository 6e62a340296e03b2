"""The check that a client's training does not depend on the clients that trained before it."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch

from tasks.base import Task, on_device
from tasks.checking.examples import CPU
from tasks.checking.finding import Finding, TaskError
from tasks.checking.repeatability import all_arrays
from tasks.data.dataset import Dataset
from tasks.model_arrays import ModelArrays
from tasks.training.evaluation import Parameters
from tasks.training.examples import Examples
from tasks.training.local_training import Config, TaskClient

CONFIG: Config = {"learning-rate": 0.01, "batch-size": 2, "seed": 1, "server-round": 1}
CLIENT_EXAMPLES = 12


def check_clients(task: Task, data: Dataset, seed: int, steps: int) -> Iterator[Finding]:
    """Yield that a client's training does not depend on who trained before; else TaskError."""
    stored = Examples.stored(task, data.train, CPU, training=True)
    rows = torch.arange(min(2 * CLIENT_EXAMPLES, len(data.train)))
    parts = [replace(stored, rows=own) for own in torch.split(rows, CLIENT_EXAMPLES)]
    start = all_arrays(task.initial_model(seed))
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
