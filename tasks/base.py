"""What a learning problem is (`Task`), its prepared examples, and how a model is tested on them.

A task knows nothing of federation: it names a model, a data set, a loss and sensible defaults.
`tasks.client.TaskClient` is written once and serves every task.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from tasks.seeds import integer

if TYPE_CHECKING:
    from tasks.data.store import DataOptions, Dataset, Split

Parameters = list[NDArray[np.generic]]
# Of one batch: the sum of the losses, the number of correct predictions, that of predictions.
BatchResult = tuple[float, float, int]
EVALUATION_BATCH = 1000


def number_correct(logits: Tensor, targets: Tensor) -> Tensor:
    """Return how many predictions (the largest logit of the last dimension) are the target."""
    return (logits.argmax(dim=-1) == targets).sum()


def number_of_predictions(targets: Tensor) -> int:
    """Return how many of the targets are to be predicted: a negative one stands for none."""
    return int((targets >= 0).sum())


@dataclass(frozen=True)
class Task:
    """A learning problem.

    Attributes:
        name: The short name, as in the config key "task".
        model: Makes the network, freshly initialised from torch's global random state.
        dataset: Returns the training and the test set, from the sources that the options allow.
        prepare: Turns a copy of some stored inputs (a tensor on the device to compute on, the first
            dimension the examples) into the model's input tensor.
        learning_rate: Default learning rate eta for local SGD.
        augment: What is done instead of ``prepare`` with training examples, each time they are
            used. It draws from torch's global random state, which a client seeds for every round;
            None where training examples are prepared as all others.
        target_accuracy: The test accuracy that the paper counts rounds to; None where it has none.
        loss: Mean loss of (logits, targets) over the predictions, those whose target is not
            negative.
        correct: Number of correct predictions of (logits, targets), a scalar tensor.
        partitions: The partition schemes that make sense here.
        learning_rates: Other defaults of eta by the strategy's name, where it needs another one.
    """

    name: str
    model: Callable[[], nn.Module]
    dataset: "Callable[[DataOptions], Dataset]"
    prepare: Callable[[Tensor], Tensor]
    learning_rate: float
    augment: Callable[[Tensor], Tensor] | None = None
    target_accuracy: float | None = None
    loss: Callable[[Tensor, Tensor], Tensor] = functional.cross_entropy
    correct: Callable[[Tensor, Tensor], Tensor] = number_correct
    partitions: tuple[str, ...] = ("iid", "shards", "classes", "dirichlet")
    learning_rates: Mapping[str, float] = field(default_factory=dict, hash=False)

    def initial_model(self, seed: int) -> nn.Module:
        """Return the model that ``seed`` initialises, leaving torch's random state alone."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(integer(seed, "model"))
            return self.model()


@dataclass(frozen=True)
class Examples:
    """Examples on a device, as they are stored or prepared for the model.

    Attributes:
        inputs: Inputs as stored or prepared, the first dimension the examples.
        targets: Their targets.
        prepare: Turns stored inputs into the model's, when they are needed; None where they are
            prepared already.
        rows: Which of the examples these are, int64; None means all.
    """

    inputs: Tensor
    targets: Tensor = field(repr=False)
    prepare: Callable[[Tensor], Tensor] | None = None
    rows: Tensor | None = None

    def __len__(self) -> int:
        return len(self.targets if self.rows is None else self.rows)

    @classmethod
    def stored(
        cls, task: "Task", split: "Split", device: torch.device, *, training: bool = False
    ) -> "Examples":
        """Return a data set's split on the device; on the CPU that is the mapped file itself."""
        inputs, targets = map(torch.from_numpy, (split.inputs, split.targets))
        prepare = task.augment if training and task.augment else task.prepare
        return cls(inputs.to(device), targets.to(device), prepare)

    def batches(self, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield consecutive batches of ``size`` (the last may be smaller); 0 means all in one.

        Stored examples are prepared one batch at a time.
        """
        size = size or len(self)
        for start in range(0, len(self), size):
            yield self.part(start, start + size)

    def part(self, start: int, end: int) -> tuple[Tensor, Tensor]:
        """Return the prepared inputs and the targets of some consecutive examples."""
        part: slice | Tensor = slice(start, end)
        if self.rows is not None:
            part = self.rows[part]
        inputs = self.inputs[part]
        if self.prepare is not None:
            inputs = self.prepare(inputs.clone() if self.rows is None else inputs)
        return inputs, self.targets[part]

    def shuffled(self, generator: torch.Generator, limit: int | None = None) -> "Examples":
        """Return the examples in an order drawn from ``generator``; only the first ``limit``."""
        order = torch.randperm(len(self), generator=generator)[:limit].to(self.targets.device)
        rows = order if self.rows is None else self.rows[order]
        return replace(self, rows=rows)

    def predictions(self) -> int:
        """Return how many predictions the examples ask for."""
        return number_of_predictions(self.targets if self.rows is None else self.targets[self.rows])

    def prepared(self) -> "Examples":
        """Return these examples prepared, in memory of their own."""
        return Examples(*self.part(0, len(self)))


def load_arrays(model: nn.Module, parameters: Parameters) -> dict[str, Tensor]:
    """Copy the arrays, in the order of the model's state dict, into the model; return that dict.

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
    return state


@torch.inference_mode()
def evaluate_batch(task: Task, model: nn.Module, inputs: Tensor, targets: Tensor) -> BatchResult:
    """Return the sum of the losses, the number of correct predictions, and that of predictions."""
    model.eval()
    logits = model(inputs)
    count = number_of_predictions(targets)
    loss = task.loss(logits, targets).item() * count
    return loss, task.correct(logits, targets).item(), count


def combine(results: Iterable[BatchResult]) -> tuple[float, float]:
    """Return (mean loss, share of correct predictions), added up in the order given."""
    loss = correct = 0.0
    predictions = 0
    for batch in results:
        loss += batch[0]
        correct += batch[1]
        predictions += batch[2]
    return loss / predictions, correct / predictions


def evaluate(task: Task, model: nn.Module, examples: Examples) -> tuple[float, float]:
    """Return (mean loss, share of correct predictions) of the model over the examples."""
    batches = examples.batches(EVALUATION_BATCH)
    return combine(evaluate_batch(task, model, *batch) for batch in batches)
