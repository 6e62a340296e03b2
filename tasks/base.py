"""`Task`: a learning problem, independent of federation.

A task names a model, a data set, a loss and default settings.
`tasks.training.task_client.TaskClient` is written once and trains any task.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from tasks.checking.finding import TaskError
from tasks.data.dataset import NO_PREDICTION, DataOptions, Dataset
from tasks.model_arrays import aliases_of, tie
from tasks.training.random_streams import derive_seed, seeded


def count_correct(logits: Tensor, targets: Tensor, classes: int = -1) -> Tensor:
    """Return how many targets are the largest logit, a scalar tensor.

    Args:
        logits: The model's outputs, in one dimension those of the classes.
        targets: The classes, of the shape of the logits without that dimension.
        classes: That dimension.

    Raises:
        ValueError: The targets have another shape.
    """
    predicted = logits.argmax(dim=classes)
    if predicted.shape != targets.shape:
        raise ValueError(
            f"the default correct takes the largest logit of the last dimension, which gives "
            f"{tuple(predicted.shape)} predictions of logits {tuple(logits.shape)}, for targets "
            f"{tuple(targets.shape)}: give the task's own correct"
        )
    return (predicted == targets).sum()


def count_predictions(targets: Tensor) -> int:
    """Return how many of the targets are to be predicted; negative ones are ignored."""
    return int((targets >= 0).sum())


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
    channels-last ones torch adds up a channel's values in one float32 sum, and the mean over 4,000
    images is off in the third digit. On a GPU cuDNN is told to sum in the same order each time.
    """
    if device.type == "cpu":
        for module in model.modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm):
                module.register_forward_pre_hook(_contiguous)
    else:
        torch.backends.cudnn.deterministic = True
    aliases = aliases_of(model.state_dict(keep_vars=True))
    tie(model, aliases)  # moving would part weights that are one by their memory alone
    model = model.to(device)
    # 3-d convolutions have no channels-last layout.
    if not any(array.dim() == 5 for array in model.state_dict().values()):
        model = model.to(memory_format=torch.channels_last)
    tie(model, aliases)  # moving copies buffers
    return model.train()


def _contiguous(_: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return tuple(one.contiguous() for one in inputs)


@dataclass(frozen=True)
class Task:
    """A learning problem.

    Attributes:
        name: The short name, as in the config key "task".
        model: Returns a new network, initialised from torch's global random state.
        dataset: Returns the training and the test set, from the sources that the options allow.
        prepare: Turns a copy of some stored inputs (a tensor on the device to compute on, the first
            dimension the examples) into the model's input tensor.
        learning_rate: Default learning rate eta of local SGD.
        augment: Replaces ``prepare`` for training examples, each time they are used. It draws from
            torch's global random state, which is seeded for every client and round. None for no
            augmentation.
        target_accuracy: The test accuracy to which the paper counts rounds; None where it has none.
        embedded_target_accuracy: The same where the data are the embedded part, with which the
            paper's may be out of reach.
        loss: Mean loss of (logits, targets) over the predictions, those whose target is not
            negative. PyTorch's ignores a target of -100.
        correct: Number of correct predictions of (logits, targets), a scalar tensor. The default
            takes the largest logit of the last dimension; with torch's own cross-entropy, which has
            the classes in dimension 1, of that one.
        in_parts: Whether the gradient of a batch is the sum of those of its parts, each with its
            share of the predictions, so that a large batch may be cut: no example's output or loss
            depends on the others. None finds it out of layers and losses of torch; what is not
            known sees the whole batch.
        partitions: The names of the partitions that make sense for the data.
        learning_rates: Default learning rates for strategies that need another one, by name.
        seconds_per_example: What a step takes for each example of its batch, on one core of the
            machine of results/engine.md (`python -m benchmarks.step`); the virtual clock counts it.
    """

    name: str
    model: Callable[[], nn.Module]
    dataset: Callable[[DataOptions], Dataset]
    prepare: Callable[[Tensor], Tensor]
    learning_rate: float
    augment: Callable[[Tensor], Tensor] | None = None
    target_accuracy: float | None = None
    embedded_target_accuracy: float | None = None
    loss: Callable[[Tensor, Tensor], Tensor] = functional.cross_entropy
    correct: Callable[[Tensor, Tensor], Tensor] = count_correct
    in_parts: bool | None = None
    partitions: tuple[str, ...] = ("iid", "shards", "classes", "dirichlet")
    learning_rates: Mapping[str, float] = field(default_factory=dict, hash=False)
    seconds_per_example: float = 0.0

    def count_correct(self, outputs: Tensor, targets: Tensor) -> float:
        """Return the number of correct predictions.

        Raises:
            ValueError: It is more than there are predictions, or outputs and targets do not fit.
        """
        correct = self.correct
        if correct is count_correct and is_cross_entropy(self.loss):
            correct = partial(count_correct, classes=1)
        found, count = float(correct(outputs, targets)), count_predictions(targets)
        if not 0 <= found <= count or found != int(found):
            raise ValueError(
                f"correct counts {found:g} of {count} predictions: give the number of those whose "
                f"prediction is the target, of one shape (the targets are {tuple(targets.shape)})"
            )
        return found

    def initial_model(self, seed: int) -> nn.Module:
        """Return the model initialised by ``seed``; the global random states are not changed.

        Raises:
            TaskError: ``model`` is a network, or returns something else.
        """
        if isinstance(self.model, nn.Module):
            raise TaskError("model", "is a network: give a function that returns a new one")
        with seeded(derive_seed(seed, "model"), torch.device("cpu")):
            model = self.model()
        if not isinstance(model, nn.Module):
            raise TaskError("model", f"returned a {type(model).__name__}, not a torch.nn.Module")
        return model
