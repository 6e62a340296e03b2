"""The check of what a loss of torch's is given: logits, log-probabilities or probabilities."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from tasks.base import Task
from tasks.checking.examples import CPU
from tasks.checking.finding import Finding
from tasks.training.examples import call_model, parts_of
from tasks.training.random_streams import seeded

# The losses that are looked at, and what is wrong with what they are given.
WRONG = {
    functional.cross_entropy: "takes logits, and is given probabilities: leave the softmax out",
    functional.nll_loss: (
        "takes log-probabilities, and is given other values: end the model with log_softmax, or "
        "take cross_entropy for logits"
    ),
    functional.binary_cross_entropy_with_logits: (
        "takes logits, and is given values from 0 to 1: leave the sigmoid out"
    ),
}
# Logits may be from 0 to 1 by chance, but not in several networks whose weights are this far apart.
TRIES, SPREAD = 3, 10.0
TOLERANCE = 1e-4  # sums of float32 differ by less


class _Watch(TorchFunctionMode):
    """Keeps what torch's losses are given as outputs, whoever calls them."""

    def __init__(self) -> None:
        super().__init__()
        self.given: list[tuple[Any, Tensor]] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in WRONG:
            self.given.append((func, args[0] if args else kwargs["input"]))
        return func(*args, **kwargs)


def check_loss_inputs(
    task: Task, inputs: Any, outputs: Any, targets: Any, loss: float
) -> Iterator[Finding]:
    """Yield what is likely to be wrong with a loss although it is a number.

    Args:
        task: The task.
        inputs: Of some training examples.
        outputs: What the initial model returns for them.
        targets: Their targets.
        loss: Of these.
    """
    for function, given in _given(task, outputs, targets):
        classes = min(1, given.dim() - 1)
        if function is functional.binary_cross_entropy_with_logits:
            is_wrong = _is_probability(given) and _has_bounds(task, inputs, targets)
        elif function is functional.nll_loss:
            is_wrong = not _sums_to_1(given.exp(), classes)
        else:
            is_wrong = _is_probability(given) and _sums_to_1(given, classes)
        if is_wrong:
            yield Finding("warning", "loss", f"torch's {function.__name__} {WRONG[function]}")
            return
    if loss < 0:
        text = f"is {loss:.4g} for the initial model, below 0, which no cross-entropy, squared or "
        yield Finding("warning", "loss", f"{text}absolute error is: check what it is given")
    if loss and _is_sum(task, outputs, targets, loss):
        text = "is a sum over the examples: a step grows with the size of its batch; give the mean"
        yield Finding("warning", "loss", text)


@torch.no_grad()
def _given(task: Task, outputs: Any, targets: Any) -> list[tuple[Any, Tensor]]:
    watch = _Watch()
    with watch, seeded(0, CPU):
        task.loss(outputs, targets)
    return watch.given


def _is_probability(values: Tensor) -> bool:
    return bool(((values >= 0) & (values <= 1)).all())


def _sums_to_1(values: Tensor, dimension: int) -> bool:
    sums = values.float().sum(dimension)
    return torch.allclose(sums, torch.ones_like(sums), atol=TOLERANCE)


@torch.no_grad()
def _has_bounds(task: Task, inputs: Any, targets: Any) -> bool:
    """Return whether what the loss is given is from 0 to 1 whatever the weights are."""
    for seed in range(TRIES):
        model = task.initial_model(seed)
        try:
            with seeded(seed, CPU):
                for weight in model.parameters():
                    weight.add_(SPREAD * torch.randn_like(weight))
                given = _given(task, call_model(model, inputs), targets)
        except Exception:  # such weights are too large for it: nothing is known
            return False
        if not all(_is_probability(values) for _, values in given):
            return False
    return True


@torch.no_grad()
def _is_sum(task: Task, outputs: Any, targets: Any, loss: float) -> bool:
    """Return whether the loss of a batch is the sum of those of its parts."""
    number = len(targets) if isinstance(targets, Tensor) else 0
    if number < 3 or not isinstance(outputs, Tensor) or len(outputs) != number:
        return False
    parts = [parts_of(values, number // 3, number) for values in (outputs, targets)]
    try:
        with seeded(0, CPU):
            total = sum(float(task.loss(*pair)) for pair in zip(*parts, strict=True))
    except Exception:  # it takes whole batches only
        return False
    return abs(total - loss) <= TOLERANCE * abs(loss)
