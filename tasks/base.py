"""`Task`: a learning problem, independent of federation.

A task names a model, a data set, a loss and default settings.
`tasks.training.local_training.TaskClient` is written once and trains any task.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from tasks.checking import TaskError
from tasks.data.dataset import NO_PREDICTION, DataOptions, Dataset, Split, map_leaves
from tasks.data.map_style import MapStyleSplit
from tasks.metrics import Metric, accuracy, make_metric
from tasks.model_arrays import aliases_of, tie
from tasks.objective import ACCURACY, LOSS, Objective
from tasks.training.examples import Examples, MapStyleExamples
from tasks.training.optimizers import Memory
from tasks.training.random_streams import derive_seed, seeded
from tasks.training.training_settings import TrainingSettings

OwnLoop = Callable[[nn.Module, Examples, TrainingSettings, Memory], Mapping[str, float]]


def is_cross_entropy(loss: object) -> bool:
    """Return whether a loss is torch's own cross-entropy: a function, a module or a partial."""
    if isinstance(loss, partial):
        loss = loss.func
    return loss is functional.cross_entropy or type(loss) is nn.CrossEntropyLoss


def ignored_target(loss: object) -> int:
    """Return the target that a cross-entropy of torch's ignores, by default -100."""
    if isinstance(loss, partial):
        return int(loss.keywords.get("ignore_index", NO_PREDICTION))
    return int(getattr(loss, "ignore_index", NO_PREDICTION))


def on_device(model: nn.Module, device: torch.device, *, channels_last: bool = False) -> nn.Module:
    """Return the model on the device, its weights in channels-last layout where that is asked for.

    On a GPU cuDNN is told to sum in the same order each time.
    """
    if device.type != "cpu":
        torch.backends.cudnn.deterministic = True
    aliases = aliases_of(model.state_dict(keep_vars=True))
    model = model.to(device)
    if channels_last:
        model = model.to(memory_format=torch.channels_last)
    tie(model, aliases)  # moving separates buffers, and weights that are tied by memory alone
    return model


@dataclass(frozen=True, eq=False)
class Task:
    """A learning problem.

    It is trained as torch trains: each message a network newly made by ``model``, a backward pass
    over the whole batch, and a step of the optimiser of `torch.optim`. ``in_parts``,
    ``shared_model`` and ``channels_last`` are shortcuts, which give the same numbers up to rounding
    for tasks of which they are true; ``fedavg check`` compares both.

    Attributes:
        name: The short name, as in the config key "task".
        model: Returns a new network, initialised from torch's global random state.
        dataset: Returns the training and the test set, from the sources that the options allow.
        prepare: Turns a copy of some stored inputs (a tensor on the device to compute on, the first
            dimension the examples; or a dictionary of such) into what the model is called with: a
            tensor, a tuple of arguments, or a dictionary of keyword arguments.
        learning_rate: Default learning rate eta of local SGD.
        augment: Replaces ``prepare`` for training examples, each time they are used. It draws from
            torch's global random state, which is seeded for every client and round. None for no
            augmentation.
        train: Replaces the default training loop. Called with (model, examples, settings, memory):
            the model with the weights of the round, to be changed in place; the client's examples
            in an order drawn for the round; the config's local work; and arrays by name that the
            client keeps from round to round. Returns metrics by name; "train-loss" is the training
            loss.
        target: The value of the objective to which rounds are counted, in the papers a test
            accuracy; None for no target.
        embedded_target: The target for the embedded part of the data, which may not reach the
            paper's.
        loss: Mean loss of (outputs, targets) over the predictions: integer targets that are not
            negative (PyTorch's losses ignore -100), otherwise examples.
        predict: Turns the outputs into what metrics get, such as `torch.sigmoid`; None for the
            outputs.
        metrics: What a test computes besides the loss, by name: functions of (outputs, targets)
            that return a sum and a count, whose quotient is the metric, or metrics of torchmetrics.
            The default is the accuracy of the largest logit of the last dimension, or of dimension
            1 with torch's own cross-entropy, which has the classes there.
        objective: What best model, target and comparisons use: a metric's name or "loss", with its
            direction if that is not known, as in "min mae"; "" for the first metric, or the loss if
            there is none.
        optimizer: What ``optimizer = "auto"`` means: "sgd", another of `torch.optim` or a path.
        optimizer_args: The optimizer's arguments except the learning rate; none for SGD.
        in_parts: Whether the gradient of a batch is the sum of its parts' gradients, each weighted
            by its share of the predictions: no example's output or loss depends on the others.
            Large batches are then split, and the dense layers at the end of a `torch.nn.Sequential`
            are trained without autograd (`tasks.training.dense_step`), so hooks on them do not run.
        shared_model: Whether the clients of a process may train one network object in turn: it
            keeps nothing outside its state dict, and it, the loss and ``augment`` draw from torch's
            random state alone.
        channels_last: Whether images and the weights of convolutions are in torch's channels-last
            layout, in which 2-d convolutions are faster, but ``view`` may fail and batch
            normalisation on a CPU sums less exactly.
        partitions: The names of the partitions that make sense for the data.
        learning_rates: Default learning rates for strategies or optimizers that need another rate,
            by name.
        seconds_per_example: The time of a step per example of its batch, on one core of the machine
            of results/engine.md (`python -m benchmarks.step`), for the virtual clock.
    """

    name: str
    model: Callable[[], nn.Module]
    dataset: Callable[[DataOptions], Dataset]
    prepare: Callable[[Any], Any]
    learning_rate: float
    augment: Callable[[Any], Any] | None = None
    train: OwnLoop | None = None
    target: float | None = None
    embedded_target: float | None = None
    loss: Callable[[Any, Any], Tensor] = functional.cross_entropy
    predict: Callable[[Any], Any] | None = None
    metrics: Mapping[str, Any] = field(default_factory=lambda: {ACCURACY: accuracy})
    objective: str = ""
    optimizer: str = "sgd"
    optimizer_args: Mapping[str, Any] = field(default_factory=dict)
    in_parts: bool = False
    shared_model: bool = False
    channels_last: bool = False
    partitions: tuple[str, ...] = ("iid", "shards", "classes", "dirichlet")
    learning_rates: Mapping[str, float] = field(default_factory=dict)
    seconds_per_example: float = 0.0

    def test_metrics(self) -> dict[str, Metric]:
        """Return the metrics that a test computes, by name.

        Raises:
            TypeError: A metric is neither a function nor a metric of torchmetrics, or they are no
                dictionary.
            ValueError: The objective is not of the form "min name".
        """
        if not isinstance(self.metrics, dict):
            kind = type(self.metrics).__name__
            raise TypeError(f"they are a {kind}: give a dictionary of them by name")
        found = {name: make_metric(name, metric) for name, metric in self.metrics.items()}
        if self.metrics.get(ACCURACY) is accuracy and is_cross_entropy(self.loss):
            found[ACCURACY] = make_metric(ACCURACY, partial(accuracy, classes=1))
        name = (self.objective or "").partition(" ")[2]
        if name in found:
            found[name].higher_is_better = Objective.parse(self.objective).higher_is_better
        return found

    def examples(self, split: Split, device: torch.device, *, training: bool = False) -> Examples:
        """Return a split of the data on the device, prepared when it is needed.

        On the CPU that is the mapped file itself; a `MapStyleSplit` is read batch by batch.
        """
        prepare = self.augment if training and self.augment else self.prepare
        if isinstance(split, MapStyleSplit):
            return MapStyleExamples(split, None, prepare, None, self.channels_last, device)
        inputs, targets = (
            map_leaves(lambda array: torch.from_numpy(array).to(device), values)
            for values in (split.inputs, split.targets)
        )
        return Examples(inputs, targets, prepare, None, self.channels_last)

    def default_objective(self) -> Objective:
        """Return the objective, with its direction.

        Raises:
            TaskError: There is no such metric, or its direction is not known.
        """
        text = self.objective or next(iter(self.metrics), LOSS)
        direction, _, name = text.rpartition(" ")
        if name not in (known := [*self.metrics, LOSS]):
            fix = f"which is no metric; there are: {', '.join(known)}"
            raise TaskError("objective", f"is {name!r}, {fix}")
        if direction:
            try:
                return Objective.parse(text)
            except ValueError as error:
                raise TaskError("objective", f"is {text!r}: {error}") from error
        higher = False if name == LOSS else self.test_metrics()[name].higher_is_better
        if higher is None:
            fix = f"give the task's objective, 'min {name}' or 'max {name}'"
            raise TaskError("objective", f"{name} does not say whether more of it is better: {fix}")
        return Objective(name, higher)

    def initial_model(self, seed: int) -> nn.Module:
        """Return the model initialised by ``seed``; the global random states are not changed.

        Raises:
            TaskError: ``model`` is a network, or returns something else.
        """
        if isinstance(self.model, nn.Module):
            raise TaskError("model", "is a network: give a function that returns a new network")
        with seeded(derive_seed(seed, "model"), torch.device("cpu")):
            model = self.model()
        if not isinstance(model, nn.Module):
            raise TaskError("model", f"returned a {type(model).__name__}, not a torch.nn.Module")
        return model

    def network(self, seed: int, device: torch.device) -> nn.Module:
        """Return a new network on the device, initialised by ``seed``, in training mode."""
        model = on_device(self.initial_model(seed), device, channels_last=self.channels_last)
        return model.train()

    def networks(self, seed: int, device: torch.device) -> Callable[[], nn.Module]:
        """Return what gives each message its network: a new one, or one for all (shared_model)."""
        make = partial(self.network, seed, device)
        return cache(make) if self.shared_model else make
