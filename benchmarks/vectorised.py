"""Training several small clients one by one, and all in one vectorised pass.

    python -m benchmarks.vectorised [--device cuda] [--clients 10]

Each client takes 60 steps of SGD from the same weights on data of its own: as `TaskClient` does it,
and stacked, with `torch.func.vmap` over `torch.func.grad`. Printed are the times of both in turn,
their ratio (above 1: the vectorised pass wins), and the largest difference of a weight, which is
not 0: sums run in another order. The data are noise; times do not depend on them.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap

from tasks.base import Task
from tasks.examples import Examples
from tasks.local_training import TaskClient
from tasks.mnist import MNIST_2NN, MNIST_CNN, MNIST_LOGISTIC
from tasks.random_streams import torch_generator

STEPS = 60
RATE = 0.01


def one_by_one(task: Task, inputs: Tensor, targets: Tensor, batch: int) -> list[Tensor]:
    """Return the trained weights of every client, stacked; inputs are (clients, examples, ...)."""
    model = task.initial_model(1).to(inputs.device)
    start = [array.cpu().numpy().copy() for array in model.state_dict().values()]
    config = {
        "learning-rate": RATE, "local-epochs": 1, "batch-size": batch, "seed": 1,
        "server-round": 1,
    }  # fmt: skip
    trained = []
    for number in range(len(inputs)):
        examples = Examples(inputs[number], targets[number])
        client = TaskClient(task, model, examples, partition=number)
        trained.append([torch.from_numpy(a) for a in client.fit(start, config)[0]])
    return [torch.stack(arrays) for arrays in zip(*trained, strict=True)]


def vectorised(task: Task, inputs: Tensor, targets: Tensor) -> list[Tensor]:
    """Return the same from one pass; inputs are (clients, steps, batch, ...), in order."""
    model = task.initial_model(1).to(inputs.device)
    weights = {
        name: array.detach().expand(len(inputs), *array.shape).clone()
        for name, array in model.named_parameters()
    }

    def loss(parameters: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return task.loss(functional_call(model, parameters, (x,)), y)

    gradients: Callable[..., dict[str, Tensor]] = vmap(grad(loss))
    for step in range(inputs.shape[1]):
        found = gradients(weights, inputs[:, step], targets[:, step])
        torch._foreach_add_(list(weights.values()), list(found.values()), alpha=-RATE)
    return [array.cpu() for array in weights.values()]


def measure(task: Task, clients: int, batch: int, device: torch.device, repeats: int) -> str:
    """Return a line: both times, the ratio and the largest difference."""
    generator = torch.Generator().manual_seed(1)
    count = STEPS * batch
    examples = torch.randn(clients, count, 1, 28, 28, generator=generator).to(device)
    labels = torch.randint(0, 10, (clients, count), generator=generator).to(device)
    # The vectorised pass gets them in the order in which each `TaskClient` takes them.
    orders = [
        torch.randperm(count, generator=torch_generator(1, "batches", number, 1)).to(device)
        for number in range(clients)
    ]
    in_order = torch.stack([x[order] for x, order in zip(examples, orders, strict=True)])
    labels_in_order = torch.stack([y[order] for y, order in zip(labels, orders, strict=True)])
    in_order = in_order.view(clients, STEPS, batch, 1, 28, 28)
    labels_in_order = labels_in_order.view(clients, STEPS, batch)
    times: dict[str, list[float]] = {"one": [], "all": []}
    for _ in range(repeats):
        started = time.perf_counter()
        one = one_by_one(task, examples, labels, batch)
        times["one"].append(time.perf_counter() - started)
        started = time.perf_counter()
        together = vectorised(task, in_order, labels_in_order)
        times["all"].append(time.perf_counter() - started)
    single, joint = statistics.median(times["one"]), statistics.median(times["all"])
    difference = max(float((a - b).abs().max()) for a, b in zip(one, together, strict=True))
    return (
        f"{task.name}, {clients} clients, B = {batch}: one by one {single * 1e3:.0f} ms, together "
        f"{joint * 1e3:.0f} ms, ratio {single / joint:.2f}x, largest difference {difference:.1e}"
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=5)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    for task, batch in ((MNIST_LOGISTIC, 20), (MNIST_2NN, 10), (MNIST_CNN, 10)):
        device = torch.device(chosen.device)
        print(measure(task, chosen.clients, batch, device, chosen.repeats))


if __name__ == "__main__":
    main()
