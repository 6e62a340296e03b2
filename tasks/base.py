"""`Task`: a learning problem, independent of federation.

A task names a model, a data set, a loss and default settings.
`tasks.training.local_training.TaskClient` is written once and trains any task.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from tasks.checking.finding import TaskError
from tasks.data.dataset import NO_PREDICTION, DataOptions, Dataset
from tasks.metrics import Metric, accuracy, make_metric, make_metrics
from tasks.model_arrays import aliases_of, tie
from tasks.objective import ACCURACY, LOSS, Objective
from tasks.training.random_streams import derive_seed, seeded


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


def on_device(model: nn.Module, device: torch.device) -> nn.Module:
    """Return the model on the device, in training mode, 2-d convolutions in channels-last layout.

    That is the layout that convolutions compute in, on a CPU and on a GPU; `Examples` has its
    batches in the same. On a CPU batch normalisation gets its inputs in the contiguous layout: for
    channels-last inputs torch adds up a channel's values in a single float32 sum, and the mean over
    4,000 images is off in the third digit. On a GPU cuDNN is told to sum in the same order each
    time.
    """
    if device.type == "cpu":
        for module in model.modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm):
                module.register_forward_pre_hook(_contiguous)
    else:
        torch.backends.cudnn.deterministic = True
    aliases = aliases_of(model.state_dict(keep_vars=True))
    tie(model, aliases)  # moving would separate weights that are tied by their memory alone
    model = model.to(device)
    # 3-d convolutions have no channels-last layout.
    if not any(array.dim() == 5 for array in model.state_dict().values()):
        model = model.to(memory_format=torch.channels_last)
    tie(model, aliases)  # moving copies buffers
    return model.train()


def _contiguous(_: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return tuple(tensor.contiguous() for tensor in inputs)


if TYPE_CHECKING:
    from tasks.training.examples import Examples
    from tasks.training.optimizers import Memory
    from tasks.training.training_settings import TrainingSettings

    OwnLoop = Callable[[nn.Module, Examples, TrainingSettings, Memory], Mapping[str, float]]


@dataclass(frozen=True)
class Task:
    """A learning problem.

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
            by its share of the predictions, so that a large batch may be split: no example's output
            or loss depends on the others. None infers it for layers and losses of torch; unknown
            code gets the whole batch.
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
    train: "OwnLoop | None" = None
    target: float | None = None
    embedded_target: float | None = None
    loss: Callable[[Any, Any], Tensor] = functional.cross_entropy
    predict: Callable[[Any], Any] | None = None
    metrics: Mapping[str, Any] = field(default_factory=lambda: {ACCURACY: accuracy}, hash=False)
    objective: str = ""
    optimizer: str = "sgd"
    optimizer_args: Mapping[str, Any] = field(default_factory=dict, hash=False)
    in_parts: bool | None = None
    partitions: tuple[str, ...] = ("iid", "shards", "classes", "dirichlet")
    learning_rates: Mapping[str, float] = field(default_factory=dict, hash=False)
    seconds_per_example: float = 0.0

    def test_metrics(self) -> dict[str, Metric]:
        """Return the metrics that a test computes, by name.

        Raises:
            TypeError: A metric is neither a function nor a metric of torchmetrics.
            ValueError: The objective is not of the form "min name".
        """
        found = make_metrics(self.metrics)
        if self.metrics.get(ACCURACY) is accuracy and is_cross_entropy(self.loss):
            found[ACCURACY] = make_metric(ACCURACY, partial(accuracy, classes=1))
        name = (self.objective or "").partition(" ")[2]
        if name in found:
            found[name].higher_is_better = Objective.parse(self.objective).higher_is_better
        return found

    def predictions(self, outputs: Any) -> Any:
        """Return the outputs as metrics get them."""
        return outputs if self.predict is None else self.predict(outputs)

    def default_objective(self) -> Objective:
        """Return the objective, with its direction.

        Raises:
            TaskError: There is no such metric, or its direction is not known.
        """
        text = self.objective or next(iter(self.metrics), LOSS)
        try:
            found = Objective.parse(text) if " " in text else None
        except ValueError as error:
            raise TaskError("objective", f"is {text!r}: {error}") from error
        name = found.name if found else text
        if name not in (known := [*self.metrics, LOSS]):
            fix = f"which is no metric; there are: {', '.join(known)}"
            raise TaskError("objective", f"is {name!r}, {fix}")
        if found:
            return found
        direction = False if name == LOSS else self.test_metrics()[name].higher_is_better
        if direction is None:
            fix = f"give the task's objective, 'min {name}' or 'max {name}'"
            raise TaskError("objective", f"{name} does not say whether more of it is better: {fix}")
        return Objective(name, direction)

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
