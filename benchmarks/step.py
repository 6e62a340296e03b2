"""One step of local SGD for every task: with its shortcuts, and by torch's own way without them.

    python -m benchmarks.step [--tasks mnist-2nn mnist-cnn] [--repeats 7]

Printed are milliseconds a step on one thread, in a client's training of 60 steps, medians of
measurements in turn, and their ratio. The data are noise; times do not depend on them.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import repeat

import torch
from rich.console import Console
from rich.table import Table

import tasks
from tasks.base import Task
from tasks.model_arrays import ModelArrays
from tasks.training.optimizer_steps import take_steps
from tasks.training.training_settings import TrainingSettings
from tests.support.made_up_examples import noise

CPU = torch.device("cpu")
# Batch sizes of the papers' main settings; 10 for the others.
BATCH_SIZES = {"mnist-logistic": 20, "cifar10-cnn": 50, "cifar10-vgg11": 20}
LEARNING_RATE = 0.001
SETTINGS, STEPS = TrainingSettings(learning_rate=LEARNING_RATE), 60
# The time that each measurement takes, about.
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
    batch = task.examples(noise(task, size), CPU).slice(0, size)
    ways = [task, replace(task, in_parts=False, channels_last=False)]

    def steps_of(way: Task) -> Callable[[], object]:
        model = way.network(1, CPU)
        arrays, rates = ModelArrays.of(model), [LEARNING_RATE] * STEPS
        return lambda: take_steps(way, model, arrays, repeat(batch), rates, SETTINGS)

    steps = [steps_of(way) for way in ways]
    for call in steps:
        call()
    times = [[milliseconds(call) / STEPS for call in steps] for _ in range(repeats)]
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
