"""FedAvg on MNIST with Apple's simulator pfl, doing the work of a run of `benchmarks.engine`.

That is: this project's models, initial weights and IID split, ten of 100 clients drawn without
replacement each round, batches in an order drawn anew for every client and round, plain SGD, and an
average weighted by n_k, which is 600 for all. pfl is used as in its own benchmarks and its guide to
fast simulations (tensors in memory, no metrics printed), with fused SGD. In round 1 it tests every
client before and after its training, whatever the evaluation frequency is; in others nothing.

pfl needs an environment of its own:

    python -m venv .venv-pfl
    .venv-pfl/bin/python -m pip install 'pfl[pytorch]==0.6.0' -e .

`benchmarks.engine` starts it, a process for each core: they share a round's clients.
"""

import functools
import itertools
import json
import os
import sys
import time
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByDatapoints
from pfl.algorithm import FederatedAveraging, NNAlgorithmParams
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.hyperparam import NNTrainHyperParams
from pfl.internal.ops import pytorch_ops
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from torch import Tensor

import tasks
from tasks.data.dataset import DataOptions
from tasks.training.random_streams import derive_seed, numpy_generator

CLIENTS, PER_ROUND, SEED = 100, 10, 1


class Log(TrainingProcessCallback[PyTorchModel]):
    """Notes when each round ends."""

    lines: ClassVar[list[tuple[float, int]]] = []

    def after_central_iteration(
        self, *_: object, central_iteration: int, **__: object
    ) -> tuple[bool, Metrics]:
        """Note the time."""
        self.lines.append((time.time(), central_iteration + 1))
        return False, Metrics()


def train(keys: dict[str, Any]) -> None:
    """Run FedAvg and write the log."""
    rank = pytorch_ops.distributed.global_rank
    np.random.seed(SEED)  # noqa: NPY002 - pfl draws its own seeds from this generator
    torch.manual_seed(derive_seed(SEED, "batches", rank))
    task = tasks.load(f"mnist-{keys['model']}")
    train = task.dataset(DataOptions(directory=keys["data"])).train
    inputs = pytorch_ops.to_tensor(task.prepare(torch.from_numpy(train.inputs)))
    targets = pytorch_ops.to_tensor(torch.from_numpy(train.targets))
    order = torch.from_numpy(numpy_generator(SEED, "partition").permutation(len(targets)))
    shares, steps = order.tensor_split(CLIENTS), keys["local-steps"]

    def client(number: int) -> Dataset:
        rows = shares[number][torch.randperm(len(shares[number]))]
        rows = rows[: steps * keys["batch-size"] or None]
        return Dataset((inputs[rows], targets[rows]))

    draw = functools.partial(numpy_generator(SEED, "participation").choice, CLIENTS, PER_ROUND)
    drawn = (number for _ in itertools.count() for number in draw(replace=False).tolist())

    def metrics(inputs: Tensor, targets: Tensor) -> dict[str, Weighted]:
        correct = (network(inputs).argmax(1) == targets).sum().item()
        return {"accuracy": Weighted(correct, len(targets))}

    network = task.initial_model(SEED)
    network.loss = lambda inputs, targets: task.loss(network(inputs), targets)
    network.metrics = torch.no_grad()(metrics)  # pfl asks both of a model
    central = torch.optim.SGD(network.parameters(), lr=1.0)
    FederatedAveraging().run(
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=keys["num-server-rounds"],
            evaluation_frequency=keys["num-server-rounds"] + 1,
            train_cohort_size=PER_ROUND,
            val_cohort_size=None,
        ),
        backend=SimulatedBackend(
            FederatedDataset(client, drawn.__next__), None, [WeightByDatapoints()]
        ),
        model=PyTorchModel(network, functools.partial(torch.optim.SGD, fused=True), central),
        model_train_params=NNTrainHyperParams(
            local_num_epochs=None if steps else 1,
            local_num_steps=steps or None,
            local_learning_rate=keys["lr"],
            local_batch_size=keys["batch-size"],
        ),
        callbacks=[Log()],
        send_metrics_to_platform=False,
    )
    if rank == 0:
        Path(keys["log"]).write_text(json.dumps(Log.lines))
    torch.distributed.destroy_process_group()  # its threads sometimes abort a process that ends


if __name__ == "__main__":
    os.environ.setdefault("PFL_PYTORCH_DEVICE", "cpu")
    torch.set_num_threads(1)
    train(json.loads(sys.argv[1]))
