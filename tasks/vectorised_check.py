"""Whether clients of a task can be trained in one vectorised pass: tried out.

`torch.func.vmap` refuses some operations, runs others in a loop without saying so (LSTM cells,
bags of embeddings), and computes something else where an example of a batch affects another (batch
normalisation, next to the rows that fill up a batch). No list of layers would be complete, so two
small clients are trained both ways.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from tasks.base import Task
from tasks.data.dataset import Split
from tasks.evaluation import Parameters
from tasks.examples import Examples
from tasks.local_training import Config, TaskClient
from tasks.vectorised import train_together

# How far the trained weights may be apart, as a share of what training changed most. Rounding
# stays below 1e-4; where examples affect one another the difference is above 1e-2.
TOLERANCE = 1e-3
# The examples of the two clients, in batches of three: unequal in number and in size.
CLIENTS = ((0, 1, 2, 3, 4), (5, 6))
# What errors of `vmap` mean, by a part of their text; {} is its first word.
REASONS = {
    "vmap fallback": "torch.func.vmap has no rule for {}",
    "random operation": "its layers draw random numbers, as dropout does",
    "data-dependent control flow": "what it computes depends on the values of its inputs",
}


def check_vectorised(task: Task, train: Split) -> None:
    """Check that one vectorised pass trains clients as each is trained alone, on the CPU.

    Args:
        task: The learning problem.
        train: Its training examples, of which the first few are used.

    Raises:
        ValueError: It does not; the reason is one line.
    """
    model = task.initial_model(1)
    start = [array.numpy().copy() for array in model.state_dict().values()]
    few = Split(train.inputs[:7].copy(), train.targets[:7].copy())
    examples = Examples.stored(task, few, torch.device("cpu"), training=True)
    clients = [
        TaskClient(task, model, replace(examples, rows=torch.tensor(rows) % len(few)), partition=k)
        for k, rows in enumerate(CLIENTS)
    ]
    config: Config = {
        "learning-rate": task.learning_rate, "local-epochs": 1, "batch-size": 3, "seed": 1,
        "server-round": 1,
    }  # fmt: skip
    alone = [client.fit(start, config)[0] for client in clients]
    try:
        with _no_loops():
            trained = train_together([client.prepare_sgd(start, config) for client in clients])
    except RuntimeError as error:
        raise ValueError(_reason(str(error))) from error
    together = [list(one.state.values()) for one in trained]
    if any(_differ(*pair, start) for pair in zip(together, alone, strict=True)):
        raise ValueError(
            "a client gets another result than it gets alone: examples of a batch, or of several "
            "clients, affect one another"
        )


def largest_difference(first: Parameters, second: Parameters) -> float:
    """Return the largest difference of an entry of two models' arrays; NaN if there is one."""
    pairs = zip(first, second, strict=True)
    differences = [np.subtract(a, b, dtype=np.float64) for a, b in pairs]
    return float(np.max([np.abs(one).max() for one in differences]))


def _differ(found: Parameters, expected: Parameters, start: Parameters) -> bool:
    change = largest_difference(expected, start)
    return not largest_difference(found, expected) <= TOLERANCE * change


@contextmanager
def _no_loops() -> Iterator[None]:
    """Let `vmap` raise where it would call an operation once for each client."""
    functorch: Any = torch._C._functorch
    before = functorch._is_vmap_fallback_enabled()
    functorch._set_vmap_fallback_enabled(False)
    try:
        yield
    finally:
        functorch._set_vmap_fallback_enabled(before)


def _reason(text: str) -> str:
    first_word, first_line = text.split(maxsplit=1)[0], text.splitlines()[0]
    return next((r.format(first_word) for part, r in REASONS.items() if part in text), first_line)
