"""Whether a GPU gives the right results, and what the vectorised pass gains on it.

    python -m benchmarks.gpu_check [--device cuda] [--clients 10 100 1000] [--steps 20]

First results are compared: clients trained one by one on the device with the same on the CPU, and
trained together with one by one. Then some numbers of clients are timed both ways, prepared and
read back included, and a table for results/engine.md is printed. The examples are noise; times do
not depend on them. Without a GPU this says so and exits with 1, as it does where results differ.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import torch

from tasks.base import Task, on_device
from tasks.cifar import CIFAR10_CNN, CIFAR10_VGG
from tasks.evaluation import Parameters
from tasks.examples import Examples
from tasks.local_training import Config, TaskClient
from tasks.mnist import MNIST_2NN, MNIST_CNN, MNIST_LOGISTIC
from tasks.vectorised import train_together
from tasks.vectorised_check import largest_difference

COMPARED = (MNIST_LOGISTIC, MNIST_2NN, MNIST_CNN, CIFAR10_CNN, CIFAR10_VGG)
TIMED = (MNIST_2NN, MNIST_CNN, CIFAR10_CNN)
BATCH = 10
EXAMPLES_PER_CLIENT = 60
# Unequal numbers of examples and of batches, and unequal last batches.
COMPARED_SIZES = (23, 4, 17, 10)
# How far weights may be apart, as a share of what training changed most. Single gradients differ by
# 1e-6; over some steps that decides which of two almost equal pixels is the largest of a pool.
TOLERANCE = 1e-2
# No measurement begins later than this, in seconds: the longest ones take a minute or two.
TIME_LIMIT = 300


def make_clients(task: Task, sizes: Sequence[int], device: torch.device) -> list[TaskClient]:
    """Return clients with so many examples of noise each, on the device."""
    rng = np.random.default_rng(1)
    shape = (3, 32, 32) if task.augment else (28, 28)
    inputs = torch.from_numpy(rng.integers(0, 256, (sum(sizes), *shape), np.uint8)).to(device)
    targets = torch.from_numpy(rng.integers(0, 10, sum(sizes))).to(device)
    model = on_device(task.initial_model(1), device)
    examples = Examples(inputs, targets, task.augment or task.prepare)
    rows = torch.arange(sum(sizes), device=device).split(list(sizes))
    return [
        TaskClient(task, model, replace(examples, rows=own), partition=number)
        for number, own in enumerate(rows)
    ]


def initial_arrays(task: Task) -> Parameters:
    """Return the model that the clients are sent."""
    return [array.numpy().copy() for array in task.initial_model(1).state_dict().values()]


def local_work(task: Task, **changes: float) -> Config:
    """Return the config of the clients' work: two epochs unless ``changes`` say otherwise."""
    rate = task.learning_rate / 5  # noise diverges at the rate for images
    work: Config = {
        "learning-rate": rate, "local-epochs": 2, "batch-size": BATCH, "seed": 1, "server-round": 1,
    }  # fmt: skip
    return {**work, **{name.replace("_", "-"): value for name, value in changes.items()}}


def one_by_one(clients: Sequence[TaskClient], start: Parameters, work: Config) -> list[Parameters]:
    """Return the trained arrays of every client."""
    return [client.fit(start, work)[0] for client in clients]


def together(clients: Sequence[TaskClient], start: Parameters, work: Config) -> list[Parameters]:
    """Return the same from one vectorised pass."""
    trained = train_together([client.prepare_sgd(start, work) for client in clients])
    return [list(one.state.values()) for one in trained]


def difference(a: list[Parameters], b: list[Parameters], start: Parameters) -> float:
    """Return the largest difference of a weight, as a share of what training changed most."""
    changed = max(largest_difference(one, start) for one in b)
    return max(largest_difference(*pair) for pair in zip(a, b, strict=True)) / changed


def compare(device: torch.device) -> bool:
    """Print how far results are apart; return whether all are within the tolerance."""
    print(f"| task | one by one, {device} to cpu | together to one by one, {device} | |")
    print("| --- | --- | --- | --- |")
    passed = True
    for task in COMPARED:
        start = initial_arrays(task)
        work = local_work(task, momentum=0.5, proximal_mu=0.1)
        clients = make_clients(task, COMPARED_SIZES, device)
        on_cpu = one_by_one(make_clients(task, COMPARED_SIZES, torch.device("cpu")), start, work)
        with exact_products():
            alone, joint = one_by_one(clients, start, work), together(clients, start, work)
        found = difference(alone, on_cpu, start), difference(joint, alone, start)
        equal = max(found) <= TOLERANCE  # not for NaN either
        passed &= equal
        verdict = "ok" if equal else "DIFFERENT"
        print(f"| {task.name} | {found[0]:.1e} | {found[1]:.1e} | {verdict} |", flush=True)
    return passed


@contextmanager
def exact_products() -> Iterator[None]:
    """Multiply in float32, not in TF32, which convolutions on a GPU do by default."""
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32 = before


def measure(
    way: Callable[[Sequence[TaskClient], Parameters, Config], list[Parameters]],
    task: Task,
    clients: int,
    steps: int,
    device: torch.device,
) -> tuple[float, float]:
    """Return the seconds that training takes and the peak of the GPU's memory in GiB."""
    start, work = initial_arrays(task), local_work(task, local_steps=steps)
    made = make_clients(task, [EXAMPLES_PER_CLIENT] * clients, device)
    way(made[:2], start, work)  # what only the first time takes
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    started = time.perf_counter()
    way(made, start, work)  # its results are on the CPU, so it has ended
    seconds = time.perf_counter() - started
    peak = torch.cuda.max_memory_allocated() / 2**30 if device.type == "cuda" else 0.0
    return seconds, peak


def table(clients: Sequence[int], steps: int, device: torch.device) -> None:
    """Print the times of both ways."""
    began = time.monotonic()
    print(f"\n{EXAMPLES_PER_CLIENT} examples a client, {steps} steps of B = {BATCH}:\n")
    print("| task | clients | one by one | together | ratio | GiB on the GPU: both |")
    print("| --- | --- | --- | --- | --- | --- |")
    for task in TIMED:
        for count in clients:
            if time.monotonic() - began > TIME_LIMIT:
                print(f"| {task.name} | {count} | not measured: no time left | | | |")
                continue
            alone, alone_memory = measure(one_by_one, task, count, steps, device)
            try:
                joint, joint_memory = measure(together, task, count, steps, device)
            except torch.OutOfMemoryError:
                print(f"| {task.name} | {count} | {alone:.3f} s | out of memory | | |", flush=True)
                continue
            print(
                f"| {task.name} | {count} | {alone:.3f} s | {joint:.3f} s | {alone / joint:.2f}x "
                f"| {alone_memory:.2f}, {joint_memory:.2f} |",
                flush=True,
            )


def main() -> int:
    """Compare and measure; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda", choices=["cpu", "cuda"])
    parser.add_argument("--clients", type=int, nargs="+", default=[10, 100, 1000])
    parser.add_argument("--steps", type=int, default=20)
    chosen = parser.parse_args()
    if chosen.device == "cuda" and not torch.cuda.is_available():
        print("no CUDA device here; --device cpu compares on the CPU", file=sys.stderr)
        return 1
    torch.set_num_threads(1)
    device = torch.device(chosen.device)
    name = torch.cuda.get_device_name() if device.type == "cuda" else "the CPU, one thread"
    print(f"{name}, torch {torch.__version__}\n")
    if not compare(device):
        return 1
    table(chosen.clients, chosen.steps, device)
    return 0


if __name__ == "__main__":
    sys.exit(main())
