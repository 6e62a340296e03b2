"""What averaging two models gives, from one initial model and from two (McMahan et al., figure 1).

    python -m results.figures.shared_initialisation --data-dir /path/to/mnist [--results results]

Two MNIST-2NN are trained on 600 examples each, none in common, IID: 240 updates with batches of 50
at eta = 0.1. Shown is the loss of theta w + (1 - theta) w' over the whole training set, w being the
first of them, for 50 values of theta from -0.2 to 1.2, next to the better parent's. With --results
the losses are kept for `python -m paper report`, in that folder.
"""

import argparse
import sys
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure as Drawing

import tasks
from fedavg_app.callbacks.plots import BLUE, ORANGE, save_figure
from fedavg_app.config import RunConfig, with_clients
from fedavg_app.partitioning.cache import partition
from paper.figures import FIGURES, Figure
from tasks.base import Task
from tasks.data.dataset import DataOptions, Dataset
from tasks.training.evaluation import Parameters, evaluate, load_arrays
from tasks.training.examples import Examples
from tasks.training.local_training import TaskClient

CPU = torch.device("cpu")
THETAS = np.linspace(-0.2, 1.2, 50)
WORK = {"learning-rate": 0.1, "local-epochs": 20, "batch-size": 50, "server-round": 1}


def parent(task: Task, data: Dataset, rows: torch.Tensor, number: int, seed: int) -> Parameters:
    """Return the weights that the seed's initial model gets from training on these examples."""
    model = task.initial_model(seed)
    start = [array.numpy().copy() for array in model.state_dict().values()]
    inputs, targets = map(torch.from_numpy, (data.train.inputs, data.train.targets))
    examples = Examples(inputs, targets, task.prepare, rows)
    client = TaskClient(task, model, examples, partition=number)
    return client.fit(start, {**WORK, "seed": 1})[0]


def losses(task: Task, data: Dataset, first: Parameters, second: Parameters) -> list[float]:
    """Return the loss over the whole training set for every theta."""
    examples, model = Examples.stored(task, data.train, CPU), task.model()
    found = []
    for theta in THETAS:
        pairs = zip(first, second, strict=True)
        mixed = [(theta * w + (1 - theta) * v).astype(np.float32) for w, v in pairs]
        load_arrays(model, dict(zip(model.state_dict(), mixed, strict=True)))
        found.append(evaluate(task, model, examples)[0])
    return found


def main() -> None:
    """Train the parents, average them, print and draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--results", default="")
    options = parser.parse_args()
    torch.set_num_threads(1)
    task = tasks.load("mnist-2nn")
    data = task.dataset(DataOptions(directory=options.data_dir))
    config = with_clients(RunConfig())
    parts = [torch.from_numpy(rows) for rows in partition(data, "train", config)[:2]]
    whole, model = Examples.stored(task, data.train, CPU), task.model()
    found, curves = [], {}
    drawing = Drawing(figsize=(9, 3.6), layout="constrained")
    all_axes = drawing.subplots(1, 2)
    for axes, title, seeds in zip(
        all_axes, ("independent initial models", "one initial model"), ((1, 2), (1, 1)), strict=True
    ):
        pair = [parent(task, data, parts[n], n, seed) for n, seed in enumerate(seeds)]
        own_losses = []
        for weights in pair:
            load_arrays(model, dict(zip(model.state_dict(), weights, strict=True)))
            own_losses.append(evaluate(task, model, whole)[0])
        curve = losses(task, data, *pair)
        middle = float(np.interp(0.5, THETAS, curve))
        found.append(
            f"{title}: the parents' losses are {own_losses[0]:.3f} and {own_losses[1]:.3f}, that "
            f"of their mean {middle:.3f}; the least is {min(curve):.3f} at theta = "
            f"{THETAS[int(np.argmin(curve))]:.2f}, where the first is theta = 1"
        )
        sys.stdout.write(f"{found[-1]}\n")
        curves[title] = {"parents": own_losses, "loss": curve}
        axes.plot(THETAS, curve, color=BLUE, label="theta w + (1 - theta) w'")
        axes.axhline(min(own_losses), color=ORANGE, linestyle="--", label="the better parent")
        axes.set(title=title, xlabel="theta", ylabel="loss on the training set")
        axes.legend()
    if options.results:
        path = Path(options.results) / FIGURES / "shared-initialisation.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        save_figure(drawing, path)
        Figure(
            title="Loss of the mean of two models, from independent and from one initial model",
            source="McMahan et al. 2017, figure 1",
            command=(
                "python -m results.figures.shared_initialisation --data-dir /path/to/mnist "
                "--results results"
            ),
            found=found,
            data={"theta": THETAS.tolist(), **curves},
        ).write(path.with_suffix(".json"))


if __name__ == "__main__":
    main()
