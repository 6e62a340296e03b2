"""One step of local SGD for every task, next to the same step with autograd and `torch.optim.SGD`.

    python -m benchmarks.step [--tasks mnist-2nn mnist-cnn] [--repeats 7]

Printed are milliseconds a step on one thread, medians of measurements in turn, and their ratio. The
data are noise; times do not depend on them.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from rich.console import Console
from rich.table import Table

import tasks
from tasks.base import on_device
from tasks.training.autograd_step import make_step
from tasks.training.examples import Examples
from tasks.training.sgd_update import WeightUpdate
from tasks.training.training_settings import TrainingSettings
from tests.support.made_up_examples import noise

CPU = torch.device("cpu")
# Batch sizes of the papers' main settings; 10 for the others.
BATCH_SIZES = {"mnist-logistic": 20, "cifar10-cnn": 50, "cifar10-vgg11": 20}
LEARNING_RATE = 0.001
# About this long is spent on each measurement.
SECONDS = 0.15


def milliseconds(step: Callable[[], object]) -> float:
    """Return what one call takes, from `SECONDS` of calls."""
    calls, started = 0, time.perf_counter()
    while (passed := time.perf_counter() - started) < SECONDS or calls < 2:
        step()
        calls += 1
    return passed * 1e3 / calls


def measure(name: str, repeats: int) -> list[str]:
    """Return a table's row for a task."""
    task, size = tasks.load(name), BATCH_SIZES.get(name, 10)
    inputs, targets = Examples.stored(task, noise(task, size), CPU).slice(0, size)
    model, reference = (on_device(task.initial_model(1), CPU) for _ in range(2))
    weights = list(model.parameters())
    step = make_step(model, task.loss, weights, WeightUpdate(weights, TrainingSettings()))
    optimizer = torch.optim.SGD(reference.parameters(), LEARNING_RATE)

    def torch_step() -> None:
        optimizer.zero_grad()
        task.loss(reference(inputs), targets).backward()
        optimizer.step()

    steps: list[Callable[[], object]] = [
        lambda: step(inputs, targets, LEARNING_RATE),
        torch_step,
    ]
    for call in steps:
        call()
    times = [[milliseconds(call) for call in steps] for _ in range(repeats)]
    ours, theirs = (statistics.median(column) for column in zip(*times, strict=True))
    return [f"{name}, B = {size}", f"{ours:.3f}", f"{theirs:.3f}", f"{theirs / ours:.2f}x"]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", nargs="+", choices=tasks.names(), default=tasks.names())
    parser.add_argument("--repeats", type=int, default=7)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    table = Table("", "this project", "torch", "ratio", title="a step of SGD on one thread, ms")
    for name in chosen.tasks:
        table.add_row(*measure(name, chosen.repeats))
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
