"""What a learning problem is (`Task`) and how one client learns it (`TaskClient`).

A task knows nothing of federation: it names a model, a data set, a loss and sensible defaults.
`TaskClient` is written once and serves every task.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch
from flwr.client import NumPyClient
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from tasks.seeds import integer, torch_stream

if TYPE_CHECKING:
    from tasks.data.store import DataOptions, Dataset

Parameters = list[NDArray[np.generic]]
Config = dict[str, bool | bytes | float | int | str]
EVALUATION_BATCH = 1000
# As many examples at once as a full-batch gradient holds in memory; the sum is the same.
GRADIENT_BATCH = 2000


def number_correct(logits: Tensor, targets: Tensor) -> Tensor:
    """Return how many predictions (the largest logit of the last dimension) are the target."""
    return (logits.argmax(dim=-1) == targets).sum()


@dataclass(frozen=True)
class Task:
    """A learning problem.

    Attributes:
        name: The short name, as in the config key "task".
        model: Makes the network, freshly initialised from torch's global random state.
        dataset: Returns the training and the test set, from the sources that the options allow.
        prepare: Turns stored inputs (a NumPy array, first dimension the examples) into the
            model's input tensor.
        learning_rate: Default learning rate eta for local SGD.
        target_accuracy: The test accuracy that the paper counts rounds to; None where it has none.
        loss: Mean loss of (logits, targets) over the predictions.
        correct: Number of correct predictions of (logits, targets), a scalar tensor.
        partitions: The partition schemes that make sense here.
    """

    name: str
    model: Callable[[], nn.Module]
    dataset: "Callable[[DataOptions], Dataset]"
    prepare: Callable[[NDArray[np.generic]], Tensor]
    learning_rate: float
    target_accuracy: float | None = None
    loss: Callable[[Tensor, Tensor], Tensor] = functional.cross_entropy
    correct: Callable[[Tensor, Tensor], Tensor] = number_correct
    partitions: tuple[str, ...] = ("iid", "shards")

    def initial_model(self, seed: int) -> nn.Module:
        """Return the model that ``seed`` initialises, leaving torch's random state alone."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(integer(seed, "model"))
            return self.model()


@dataclass(frozen=True)
class Examples:
    """Prepared examples on a device: ``inputs`` and ``targets`` of the same first dimension."""

    inputs: Tensor
    targets: Tensor = field(repr=False)

    def __len__(self) -> int:
        return len(self.targets)

    def batches(self, size: int) -> list[tuple[Tensor, Tensor]]:
        """Return consecutive batches of ``size`` (the last may be smaller); 0 means all in one."""
        size = size or len(self)
        pairs = zip(torch.split(self.inputs, size), torch.split(self.targets, size), strict=True)
        return list(pairs)

    def shuffled(self, generator: torch.Generator) -> "Examples":
        """Return the examples in an order drawn from ``generator``."""
        order = torch.randperm(len(self), generator=generator).to(self.targets.device)
        return Examples(self.inputs[order], self.targets[order])


class TaskClient(NumPyClient):
    """One client's local work on any task: plain SGD, a full gradient, or an evaluation.

    Args:
        task: The learning problem.
        model: A network of the task, on the device to compute on; its weights are overwritten.
        train: The client's training examples, on the same device.
        test: The client's test examples; None where it holds none.
        partition: The client's number, which with the seed and the round fixes its batches.
    """

    def __init__(
        self,
        task: Task,
        model: nn.Module,
        train: Examples | None,
        test: Examples | None = None,
        *,
        partition: int = 0,
    ) -> None:
        self.task, self.model, self.partition = task, model, partition
        self._train, self._test = train, test

    def fit(self, parameters: Parameters, config: Config) -> tuple[Parameters, int, Config]:
        """Run local SGD (ClientUpdate of arXiv 1602.05629v4, Algorithm 1).

        The examples are split into batches of B once, in an order fixed by (seed, partition,
        round), and E epochs run over the same batches, as the algorithm is written; or, with
        "local-steps" > 0, that many steps, beginning again when the batches are used up.

        Args:
            parameters: The model's arrays, in the order of its state dict.
            config: "learning-rate" (eta), "local-epochs" (E), "local-steps" (0: epochs count),
                "batch-size" (B, 0: all local examples), "seed", "server-round"; optionally
                "proximal-mu" (FedProx's mu: adds mu / 2 * |w - w_sent|^2 to the loss).

        Returns:
            The trained arrays, the number of local examples n_k, and {"train-loss": the mean
            batch loss over the local steps}.
        """
        examples = _required(self._train, "train")
        self._load(parameters)
        order = torch_stream(
            int(config["seed"]), "batches", self.partition, int(config["server-round"])
        )
        batches = examples.shuffled(order).batches(int(config["batch-size"]))
        steps = int(config.get("local-steps", 0)) or len(batches) * int(config["local-epochs"])
        loss = self._descend(
            [batches[step % len(batches)] for step in range(steps)],
            float(config["learning-rate"]),
            float(config.get("proximal-mu", 0.0)),
        )
        return self._arrays(), len(examples), {"train-loss": loss}

    def gradient(self, parameters: Parameters, config: Config) -> tuple[Parameters, int, Config]:
        """Return the gradient of the mean loss over all local examples, for FedSGD.

        Args:
            parameters: As in `fit`.
            config: Not used.

        Returns:
            The gradient's arrays, in the order of the model's state dict (zeros for what is no
            parameter), n_k, and {"train-loss": the loss at ``parameters``}.
        """
        del config
        examples = _required(self._train, "train")
        self._load(parameters)
        self.model.train()
        self.model.zero_grad(set_to_none=True)
        total = torch.zeros((), device=examples.targets.device)
        for inputs, targets in examples.batches(GRADIENT_BATCH):
            loss = self.task.loss(self.model(inputs), targets) * (len(targets) / len(examples))
            loss.backward()  # type: ignore[no-untyped-call]
            total += loss.detach()
        found = {name: parameter.grad for name, parameter in self.model.named_parameters()}
        gradient = [
            torch.zeros_like(array) if (grad := found.get(name)) is None else grad
            for name, array in self.model.state_dict().items()
        ]
        arrays = [array.cpu().numpy() for array in gradient]
        return arrays, len(examples), {"train-loss": total.item()}

    def evaluate(self, parameters: Parameters, config: Config) -> tuple[float, int, Config]:
        """Return the loss, the number of test examples, and {"accuracy": share correct}."""
        del config
        examples = _required(self._test, "test")
        self._load(parameters)
        loss, accuracy = evaluate(self.task, self.model, examples)
        return loss, len(examples), {"accuracy": accuracy}

    def _descend(self, batches: list[tuple[Tensor, Tensor]], rate: float, mu: float) -> float:
        """Take one SGD step per batch; return the mean of the batches' losses."""
        self.model.train()
        weights = list(self.model.parameters())
        sent = [weight.detach().clone() for weight in weights] if mu else []
        # weight_decay and momentum stay 0: Algorithm 1 is plain SGD.
        optimizer = torch.optim.SGD(weights, lr=rate, fused=True)
        total = torch.zeros((), device=weights[0].device)
        for inputs, targets in batches:
            optimizer.zero_grad(set_to_none=True)
            loss = self.task.loss(self.model(inputs), targets)
            loss.backward()  # type: ignore[no-untyped-call]
            for weight, origin in zip(weights, sent, strict=False):
                assert weight.grad is not None
                weight.grad.add_(weight.detach() - origin, alpha=mu)
            optimizer.step()
            total += loss.detach()
        return total.item() / len(batches)

    def _load(self, parameters: Parameters) -> None:
        load_arrays(self.model, parameters)

    def _arrays(self) -> Parameters:
        """Copy the weights out: the model's memory is used again by the next client."""
        return [array.cpu().numpy().copy() for array in self.model.state_dict().values()]


def load_arrays(model: nn.Module, parameters: Parameters) -> None:
    """Copy the arrays, in the order of the model's state dict, into the model.

    Raises:
        ValueError: Another number of arrays, or another shape.
    """
    state = model.state_dict()
    if len(parameters) != len(state):
        raise ValueError(f"the model has {len(state)} arrays, got {len(parameters)}")
    with torch.no_grad():
        for (name, target), array in zip(state.items(), parameters, strict=True):
            if tuple(target.shape) != array.shape:
                raise ValueError(f"array {name!r} is {array.shape}, not {tuple(target.shape)}")
            target.copy_(torch.tensor(array))


@torch.inference_mode()
def evaluate(task: Task, model: nn.Module, examples: Examples) -> tuple[float, float]:
    """Return (mean loss, share of correct predictions) of the model over the examples."""
    model.eval()
    loss = correct = predictions = 0.0
    for inputs, targets in examples.batches(EVALUATION_BATCH):
        logits = model(inputs)
        loss += task.loss(logits, targets).item() * targets.numel()
        correct += task.correct(logits, targets).item()
        predictions += targets.numel()
    return loss / predictions, correct / predictions


def _required(examples: Examples | None, split: str) -> Examples:
    if examples is None or len(examples) == 0:
        raise ValueError(f"this client has no {split} examples")
    return examples
