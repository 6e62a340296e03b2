"""One step of local SGD for every task, next to what the hardware must do for it.

    python -m benchmarks.step [--tasks mnist-2nn mnist-cnn] [--repeats 7]

Printed are milliseconds a step on one thread: alone, and while every other core of the machine
takes the same steps, as the workers of a simulation do. The bound is measured in turn with the
steps, on the same shapes: the matrix products and convolutions of the forward and the backward
pass alone (products into preallocated outputs), or copying the bytes that must move (weights are
read twice and written once, layers' inputs written once and read twice), whichever takes longer.
Its share of the step is the time that is not lost. The data are noise; times do not depend on them.
"""

import argparse
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

import tasks
from tasks.base import on_device
from tasks.training.autograd_step import Step, make_step
from tasks.training.settings import LocalTraining
from tasks.training.sgd_update import WeightUpdate

CPU = torch.device("cpu")
# Batch sizes of the papers' main settings, and the shape of one prepared example.
CASES: dict[str, tuple[int, tuple[int, ...]]] = {
    "mnist-logistic": (20, (1, 28, 28)),
    "mnist-2nn": (10, (1, 28, 28)),
    "mnist-cnn": (10, (1, 28, 28)),
    "cifar10-cnn": (50, (3, 24, 24)),
    "cifar10-vgg11": (20, (3, 32, 32)),
    "shakespeare-lstm": (10, (80,)),
    "fashion-lstm": (10, (32, 32)),
}
# About this long is spent on each measurement of a step or of its bound.
SECONDS = 0.15
Work = Callable[[], object]


@dataclass(frozen=True)
class Layer:
    """A layer with weights, and the shapes that it had in a forward pass.

    Attributes:
        module: The layer.
        inputs: The shape of its input.
        outputs: The shape of its output.
    """

    module: nn.Module
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


def prepared_batch(name: str) -> tuple[Tensor, Tensor]:
    """Return a batch of noise as the task's network takes it, and its targets."""
    count, shape = CASES[name]
    generator = torch.Generator().manual_seed(0)
    if name == "shakespeare-lstm":
        inputs = torch.randint(0, 256, (count, *shape), generator=generator)
        return inputs, torch.randint(0, 256, (count, *shape), generator=generator)
    inputs = torch.randn(count, *shape, generator=generator)
    if inputs.dim() == 4:
        inputs = inputs.contiguous(memory_format=torch.channels_last)
    return inputs, torch.randint(0, 10, (count,), generator=generator)


def layers(model: nn.Module, inputs: Tensor) -> list[Layer]:
    """Return the layers that compute products, in the order of the forward pass."""
    found: list[Layer] = []

    def note(module: nn.Module, received: tuple[Tensor, ...], output: object) -> None:
        first = output[0] if isinstance(output, tuple) else output
        assert isinstance(first, Tensor)
        found.append(Layer(module, tuple(received[0].shape), tuple(first.shape)))

    hooks = [
        module.register_forward_hook(note)
        for module in model.modules()
        if isinstance(module, nn.Linear | nn.Conv2d | nn.LSTM)
    ]
    with torch.no_grad():
        model(inputs)
    for hook in hooks:
        hook.remove()
    return found


def products(rows: int, inputs: int, outputs: int, *, first: bool, times: int = 1) -> list[Work]:
    """Return the products of a dense layer: forward, to its input unless first, to its weights."""
    x, w, d = torch.randn(rows, inputs), torch.randn(outputs, inputs), torch.randn(rows, outputs)
    y, dx, dw = torch.empty_like(d), torch.empty_like(x), torch.empty_like(w)
    work: list[Work] = [lambda: torch.mm(x, w.t(), out=y), lambda: torch.mm(d.t(), x, out=dw)]
    if not first:
        work.append(lambda: torch.mm(d, w, out=dx))
    return work * times


def convolutions(layer: nn.Conv2d, shape: Layer, *, first: bool) -> list[Work]:
    """Return the forward and the backward pass of a convolution."""
    x = torch.randn(shape.inputs).contiguous(memory_format=torch.channels_last)
    d = torch.randn(shape.outputs).contiguous(memory_format=torch.channels_last)
    w = layer.weight.detach()
    settings = (layer.stride, layer.padding, layer.dilation, False, [0, 0], layer.groups)
    forward, backward = torch.ops.aten.convolution, torch.ops.aten.convolution_backward
    mask = [not first, True, False]
    return [
        lambda: forward(x, w, None, *settings),
        lambda: backward(d, x, w, None, *settings, mask),
    ]


def recurrences(layer: nn.LSTM, shape: Layer) -> list[Work]:
    """Return the products of an LSTM: with the inputs of all steps, with the state in each."""
    count, length, _ = shape.inputs
    gates = 4 * layer.hidden_size
    work: list[Work] = []
    for number in range(layer.num_layers):
        width = layer.hidden_size if number else layer.input_size
        work += products(count * length, width, gates, first=False)
        forward, to_weights, backward = products(count, layer.hidden_size, gates, first=False)
        del to_weights  # of all steps at once
        work += [forward, backward] * length
        work.append(products(count * length, layer.hidden_size, gates, first=True)[1])
    return work


def bound_work(model: nn.Module, inputs: Tensor) -> tuple[Work, Work]:
    """Return what takes the time of a step's products, and of the bytes that it moves."""
    found = layers(model, inputs)
    work: list[Work] = []
    for number, shape in enumerate(found):
        layer, first = shape.module, not number
        if isinstance(layer, nn.Conv2d):
            work += convolutions(layer, shape, first=first)
        elif isinstance(layer, nn.LSTM):
            work += recurrences(layer, shape)
        elif isinstance(layer, nn.Linear):
            rows = torch.Size(shape.inputs[:-1]).numel()
            work += products(rows, layer.in_features, layer.out_features, first=first)
    weights = sum(w.nbytes for w in model.parameters())
    activations = sum(4 * torch.Size(shape.inputs).numel() for shape in found)
    # A copy reads and writes each byte.
    source = torch.zeros(3 * (weights + activations) // 2, dtype=torch.uint8)
    target = torch.zeros_like(source)

    def compute() -> None:
        for one in work:
            one()

    return compute, lambda: target.copy_(source)


def milliseconds(work: Work) -> float:
    """Return what one call takes, from `SECONDS` of calls."""
    calls, started = 0, time.perf_counter()
    while (passed := time.perf_counter() - started) < SECONDS or calls < 2:
        work()
        calls += 1
    return passed * 1e3 / calls


def make_work(name: str) -> tuple[Work, nn.Module, Tensor]:
    """Return what takes a step of the task, its model and a batch's inputs."""
    torch.set_num_threads(1)
    task = tasks.load(name)
    model = on_device(task.initial_model(1), CPU)
    weights = list(model.parameters())
    step: Step = make_step(model, task.loss, weights, WeightUpdate(weights, LocalTraining(0.0)))
    inputs, targets = prepared_batch(name)
    return lambda: step(inputs, targets, 0.001), model, inputs


def repeat_steps(name: str) -> None:
    """Take steps until the process is ended."""
    work, _, _ = make_work(name)
    while True:
        work()


@contextmanager
def neighbours(name: str) -> Iterator[None]:
    """Take the same steps on every other core."""
    context = multiprocessing.get_context("spawn")
    count = len(os.sched_getaffinity(0)) - 1
    busy = [context.Process(target=repeat_steps, args=(name,)) for _ in range(count)]
    for process in busy:
        process.start()
    time.sleep(8 if busy else 0)  # until they have imported torch
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.join()


def measure(name: str, repeats: int) -> list[str]:
    """Return a table's row for a task."""
    step, model, inputs = make_work(name)
    compute, move = bound_work(model, inputs)
    for work in (step, compute, move):
        work()
    times = [[milliseconds(work) for work in (step, compute, move)] for _ in range(repeats)]
    with neighbours(name):
        beside = [[milliseconds(work) for work in (step, compute, move)] for _ in range(repeats)]
    alone, computing, moving = (statistics.median(column) for column in zip(*times, strict=True))
    shares = [
        statistics.median(max(row[1:]) / row[0] for row in measured) for measured in (times, beside)
    ]
    return [
        f"{name}, B = {len(inputs)}",
        f"{alone:.3f}",
        f"{computing:.3f}",
        f"{moving:.3f}",
        f"{shares[0]:.0%}",
        f"{statistics.median(row[0] for row in beside):.3f}",
        f"{shares[1]:.0%}",
    ]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--repeats", type=int, default=7)
    chosen = parser.parse_args()
    table = Table(title="a step of SGD on one thread, ms")
    for column in ("", "alone", "products", "bytes", "share", "with neighbours", "share"):
        table.add_column(column)
    for name in chosen.tasks:
        table.add_row(*measure(name, chosen.repeats))
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
