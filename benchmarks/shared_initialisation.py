"""What averaging two models gives, from one initial model and from two (McMahan et al., figure 1).

    python -m benchmarks.shared_initialisation --data-dir /path/to/mnist [--plot FILE.png]

Two MNIST-2NN are trained on 600 examples each, none in common, IID: 240 updates with batches of 50
at eta = 0.1. Shown is the loss of theta w + (1 - theta) w' over the whole training set, for 50
values of theta from -0.2 to 1.2, next to the better parent's.
"""

import argparse

import matplotlib as mpl
import numpy as np
import torch

import tasks
from fedavg_app.config import RunConfig
from fedavg_app.partitions import partition
from tasks.base import Examples, Parameters, Task, evaluate, load_arrays
from tasks.client import TaskClient
from tasks.data.store import DataOptions, Dataset

mpl.use("Agg")
import matplotlib.pyplot as plt

CPU = torch.device("cpu")
THETAS = np.linspace(-0.2, 1.2, 50)
WORK = {"learning-rate": 0.1, "local-epochs": 20, "batch-size": 50, "server-round": 1}


def parent(task: Task, data: Dataset, rows: torch.Tensor, number: int, seed: int) -> Parameters:
    """Return the weights that the seed's initial model gets from training on these examples."""
    model = task.initial_model(seed)
    start = [array.numpy().copy() for array in model.state_dict().values()]
    examples = Examples(
        *map(torch.from_numpy, (data.train.inputs, data.train.targets)), task.prepare, rows
    )
    client = TaskClient(task, model, examples, partition=number)
    return client.fit(start, {**WORK, "seed": 1})[0]


def losses(task: Task, data: Dataset, first: Parameters, second: Parameters) -> list[float]:
    """Return the loss over the whole training set for every theta."""
    examples, model = Examples.stored(task, data.train, CPU), task.model()
    found = []
    for theta in THETAS:
        pairs = zip(first, second, strict=True)
        mixed = [(theta * w + (1 - theta) * v).astype(np.float32) for w, v in pairs]
        load_arrays(model, mixed)
        found.append(evaluate(task, model, examples)[0])
    return found


def main() -> None:
    """Train the parents, average them, print and draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--plot", default="")
    options = parser.parse_args()
    task = tasks.load("mnist-2nn")
    data = task.dataset(DataOptions(directory=options.data_dir))
    parts = [torch.from_numpy(rows) for rows in partition(data, "train", RunConfig())[:2]]
    whole, model = Examples.stored(task, data.train, CPU), task.model()
    figure, places = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    for place, title, seeds in zip(
        places, ("independent initial models", "one initial model"), ((1, 2), (1, 1)), strict=True
    ):
        pair = [parent(task, data, parts[n], n, seed) for n, seed in enumerate(seeds)]
        own = []
        for weights in pair:
            load_arrays(model, weights)
            own.append(evaluate(task, model, whole)[0])
        curve = losses(task, data, *pair)
        middle = float(np.interp(0.5, THETAS, curve))
        print(
            f"{title}: parents {own[0]:.3f} and {own[1]:.3f}, their mean {middle:.3f}, "
            f"best {min(curve):.3f} at theta = {THETAS[int(np.argmin(curve))]:.2f}"
        )
        place.plot(THETAS, curve, color="#0072B2", label="theta w + (1 - theta) w'")
        place.axhline(min(own), color="#D55E00", linestyle="--", label="the better parent")
        place.set(title=title, xlabel="theta", ylabel="loss on the training set")
        place.legend()
    if options.plot:
        figure.savefig(options.plot, dpi=120)


if __name__ == "__main__":
    main()
