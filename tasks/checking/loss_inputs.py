"""The check of what a loss of torch's is given: logits, log-probabilities or probabilities."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from tasks.base import Task
from tasks.checking.examples import CPU
from tasks.checking.finding import Finding
from tasks.training.examples import call_model
from tasks.training.random_streams import derive_seed, seeded

WATCHED = {
    functional.cross_entropy, functional.nll_loss, functional.binary_cross_entropy_with_logits,
}  # fmt: skip
# Networks with weights far apart, for outputs that could be from 0 to 1 by chance.
TRIES, SPREAD = 3, 10.0
# Sums of float32 differ by less.
TOLERANCE = 1e-4

# A loss of torch's, and what it was given as the model's outputs.
Call = tuple[Any, Tensor]


class _Watch(TorchFunctionMode):
    """Notes the calls of torch's losses, whoever makes them."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Call] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in WATCHED:
            self.calls.append((func, (args[0] if args else kwargs["input"]).detach()))
        return func(*args, **kwargs)


def check_loss_inputs(
    task: Task, inputs: Any, outputs: Any, targets: Any, loss: float
) -> Iterator[Finding]:
    """Yield what is likely to be wrong with a loss that is a number.

    Args:
        task: The task.
        inputs: Of some training examples.
        outputs: What the initial model returns for them.
        targets: Their targets.
        loss: Of these.
    """
    for function, given in _calls(task, outputs, targets):
        if (text := _unlike(task, function, given, inputs, targets)) is not None:
            yield Finding("warning", "loss", text)
            return
    if loss < 0:
        text = f"is {loss:.4g} for the initial model, below 0, which no cross-entropy, squared or "
        yield Finding("warning", "loss", f"{text}absolute error is: check what it is given")
    if _is_sum(task, outputs, targets, loss):
        text = "is a sum over the examples: a step grows with the size of its batch; give the mean"
        yield Finding("warning", "loss", text)


def _calls(task: Task, outputs: Any, targets: Any) -> list[Call]:
    watch = _Watch()
    with watch, seeded(0, CPU), torch.no_grad():
        task.loss(outputs, targets)
    return watch.calls


def _unlike(task: Task, function: Any, given: Tensor, inputs: Any, targets: Any) -> str | None:
    """Return how what a loss of torch's is given differs from what it takes; None if it does not.

    Args:
        task: The task.
        function: The loss.
        given: The first argument, for `nll_loss` and `cross_entropy` with the classes in dimension
            1, or in the only one.
        inputs: Of the examples, to try other weights with.
        targets: Of the examples.
    """
    if function is functional.binary_cross_entropy_with_logits:
        if _is_probability(given) and _stays_probability(task, inputs, targets):
            text = "torch's binary_cross_entropy_with_logits takes logits, and is given values from"
            return f"{text} 0 to 1: leave the sigmoid out"
        return None
    classes = min(1, given.dim() - 1)
    if given.shape[classes] < 2:
        return None
    if function is functional.cross_entropy:
        if _is_probability(given) and _sums_to_1(given, classes):
            text = "torch's cross_entropy takes logits, and is given probabilities"
            return f"{text}: leave the softmax out"
    elif not _sums_to_1(given.exp(), classes):
        text = "torch's nll_loss takes log-probabilities, and is given other values"
        return f"{text}: end the model with log_softmax, or take cross_entropy for logits"
    return None


def _is_probability(values: Tensor) -> bool:
    return bool(((values >= 0) & (values <= 1)).all())


def _sums_to_1(values: Tensor, dimension: int) -> bool:
    sums = values.float().sum(dimension)
    return torch.allclose(sums, torch.ones_like(sums), atol=TOLERANCE)


def _stays_probability(task: Task, inputs: Any, targets: Any) -> bool:
    """Return whether the loss is given values from 0 to 1 whatever the weights, as of a sigmoid."""
    for number in range(TRIES):
        model: nn.Module = task.initial_model(number)
        try:
            with seeded(derive_seed(number, "spread"), CPU), torch.no_grad():
                for weight in model.parameters():
                    weight.add_(SPREAD * torch.randn_like(weight))
                calls = _calls(task, call_model(model, inputs), targets)
        except Exception:  # such weights are too large for it: nothing is known
            return False
        if not all(_is_probability(given) for _, given in calls):
            return False
    return True


def _is_sum(task: Task, outputs: Any, targets: Any, loss: float) -> bool:
    """Return whether the loss of a batch is the sum of those of its parts."""
    if not isinstance(outputs, Tensor) or not isinstance(targets, Tensor):
        return False
    if len(outputs) != len(targets) or not (size := len(targets) // 3) or not loss:
        return False
    with torch.no_grad(), seeded(0, CPU):
        try:
            parts = [
                float(task.loss(outputs[place], targets[place]))
                for place in (slice(None, size), slice(size, None))
            ]
        except Exception:  # it looks at whole batches
            return False
    return abs(sum(parts) - loss) <= TOLERANCE * abs(loss)
