"""FedAvg on MNIST with Apple's simulator pfl, doing the same work as this project's engine.

That is: its models, initial weights and IID split, clients drawn without replacement each round,
batches in an order drawn anew for every client and round, plain SGD, an average weighted by n_k,
no evaluation between rounds. pfl is used as in its own benchmarks and its guide to fast simulations
(tensors in memory, no metrics printed), plus fused SGD. Do not count round 1: pfl evaluates every
client there, before and after its training, whatever the evaluation frequency.

It needs pfl, which nothing else here does, so give it an environment of its own:

    python -m venv .venv-pfl
    .venv-pfl/bin/pip install 'pfl[pytorch]==0.6.0' -e .

Run it from the repository's root, in one process or in several that share each round's clients:

    .venv-pfl/bin/python -m benchmarks.peers.pfl_fedavg --data-dir DIR --model mnist-2nn
    .venv-pfl/bin/torchrun --standalone --nproc-per-node 2 \
        -m benchmarks.peers.pfl_fedavg --data-dir DIR --model mnist-2nn

One JSON object a line: {"started": s since the process began}, {"round": t, "seconds": s}, and
{"final": {"accuracy": on the test set, "num_rounds": n}}. One CPU core a process; Linux only.
"""

import argparse
import functools
import itertools
import json
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByDatapoints
from pfl.algorithm import FederatedAveraging, NNAlgorithmParams
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.internal.ops import pytorch_ops
from pfl.metrics import Metrics, StringMetricName, Weighted
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, nn

from tasks.base import Task
from tasks.data.dataset import DataOptions, Split
from tasks.mnist import MNIST_2NN, MNIST_CNN, MNIST_LOGISTIC
from tasks.training.random_streams import derive_seed, numpy_generator

TASKS = {task.name: task for task in (MNIST_LOGISTIC, MNIST_2NN, MNIST_CNN)}
Tensors = tuple[Tensor, ...]
CLIENTS, SEED = 100, 1


class Classifier(nn.Module):
    """A task's network with the two methods that pfl asks of a model."""

    def __init__(self, task: Task, seed: int) -> None:
        super().__init__()
        self.task, self.network = task, task.initial_model(seed)

    def loss(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Return the mean loss."""
        return self.task.loss(self.network(inputs), targets)

    @torch.no_grad()
    def metrics(self, inputs: Tensor, targets: Tensor) -> dict[str, Weighted]:
        """Return the accuracy."""
        correct = self.task.correct(self.network(inputs), targets).item()
        return {"accuracy": Weighted(correct, len(targets))}


class ClientRound(Dataset):
    """A client's random batches of one round: the same in every epoch, or as many as steps."""

    def __init__(self, tensors: Tensors, steps: int, size: int) -> None:
        order = torch.randperm(len(tensors[0]))[: steps * size or None]
        super().__init__(tuple(tensor[order] for tensor in tensors))
        self._length, self._steps = len(tensors[0]), steps

    def __len__(self) -> int:
        """Return n_k, which weights the client's update."""
        return self._length

    def iter(self, batch_size: int | None) -> Iterable[Tensors]:
        """Return the batches; when steps use them up, they come again."""
        parts = (tensor.split(batch_size or len(self)) for tensor in self.raw_data)
        batches = list(zip(*parts, strict=True))
        return itertools.islice(itertools.cycle(batches), self._steps) if self._steps else batches


class Report(TrainingProcessCallback[PyTorchModel]):
    """Prints how long after the process's start it is made, then what every round takes."""

    def __init__(self) -> None:
        ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        began = ticks / os.sysconf("SC_CLK_TCK")
        show({"started": time.clock_gettime(time.CLOCK_BOOTTIME) - began})
        self._last = time.perf_counter()

    def after_central_iteration(
        self, aggregate_metrics: Metrics, model: PyTorchModel, *, central_iteration: int
    ) -> tuple[bool, Metrics]:
        """Print the time since the round before ended."""
        del aggregate_metrics, model
        now = time.perf_counter()
        show({"round": central_iteration + 1, "seconds": now - self._last})
        self._last = now
        return False, Metrics()


def show(line: dict[str, object]) -> None:
    """Print a line of JSON, in the first process only."""
    if pytorch_ops.distributed.global_rank == 0:
        print(json.dumps(line), flush=True)


def tensors_of(task: Task, split: Split) -> Tensors:
    """Return a split's inputs, prepared for the model, and targets on pfl's device."""
    inputs = task.prepare(torch.from_numpy(split.inputs))
    return pytorch_ops.to_tensor(inputs), pytorch_ops.to_tensor(torch.from_numpy(split.targets))


def participants(args: argparse.Namespace) -> Iterator[int]:
    """Yield the clients of one round after the other, each at most once a round."""
    generator = numpy_generator(SEED, "participation")
    while True:
        yield from generator.choice(CLIENTS, args.per_round, replace=False).tolist()


def federate(args: argparse.Namespace, train: Tensors) -> FederatedDataset:
    """Split the examples IID on the clients, as the engine does."""
    order = torch.from_numpy(numpy_generator(SEED, "partition").permutation(len(train[0])))
    clients = [tuple(t[share] for t in train) for share in order.tensor_split(CLIENTS)]
    return FederatedDataset(
        lambda client: ClientRound(clients[client], args.local_steps, args.batch_size),
        participants(args).__next__,
    )


def train_and_test(args: argparse.Namespace) -> float:
    """Run FedAvg; return the final model's accuracy."""
    np.random.seed(SEED)  # noqa: NPY002 - pfl draws its own seeds from this generator
    torch.manual_seed(derive_seed(SEED, "batches", pytorch_ops.distributed.global_rank))
    task = TASKS[args.model]
    data = task.dataset(DataOptions(directory=args.data_dir))
    train, test = tensors_of(task, data.train), tensors_of(task, data.test)
    classifier = Classifier(task, SEED)
    central = torch.optim.SGD(classifier.parameters(), lr=1.0)
    model = PyTorchModel(classifier, functools.partial(torch.optim.SGD, fused=True), central)
    FederatedAveraging().run(
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=args.rounds,
            evaluation_frequency=args.rounds + 1,
            train_cohort_size=args.per_round,
            val_cohort_size=None,
        ),
        backend=SimulatedBackend(federate(args, train), None, [WeightByDatapoints()]),
        model=model,
        model_train_params=NNTrainHyperParams(
            local_num_epochs=None if args.local_steps else 1,
            local_num_steps=args.local_steps or None,
            local_learning_rate=args.learning_rate,
            local_batch_size=args.batch_size,
        ),
        callbacks=[Report()],
        send_metrics_to_platform=False,
    )
    found = model.evaluate(Dataset(test), eval_params=NNEvalHyperParams(local_batch_size=1000))
    return found[StringMetricName("accuracy")].overall_value


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir", required=True, help="folder of the IDX files")
    parser.add_argument("--model", choices=TASKS, default="mnist-2nn")
    for name, default, text in (
        ("per-round", 10, "how many of the 100 clients take part"),
        ("local-steps", 0, "if not 0, counts in place of one epoch"),
        ("batch-size", 10, "B"),
        ("learning-rate", 0.1, "eta"),
        ("rounds", 20, "the first of which pfl spends on evaluation too"),
    ):
        parser.add_argument(f"--{name}", type=type(default), default=default, help=text)
    args = parser.parse_args()
    os.environ.setdefault("PFL_PYTORCH_DEVICE", "cpu")
    torch.set_num_threads(1)
    show({"final": {"accuracy": train_and_test(args), "num_rounds": args.rounds}})


if __name__ == "__main__":
    main()
