"""The checks of the loss: it is a number with a gradient, and what it is given fits it."""

import math
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from tasks.checking import Finding, TaskError, calling
from tasks.checking.trial import (
    Trial,
    copies,
    described,
    forward,
    is_probability,
    kinds_of,
    same,
)
from tasks.data.dataset import leaves
from tasks.training.examples import CPU, number_of, parts_of
from tasks.training.random_streams import seeded

# The losses that are looked at.
LOSSES = (
    functional.cross_entropy,
    functional.nll_loss,
    functional.binary_cross_entropy_with_logits,
)
TOLERANCE = 1e-4  # sums of float32 differ by less


def check_loss(trial: Trial) -> Iterator[Finding]:
    """Yield the loss of the initial model, and what is likely to be wrong with it.

    Raises:
        TaskError: The model or the loss fails, or the loss is no finite number with a gradient.
    """
    task = trial.task
    own = task.loss.parameters() if isinstance(task.loss, nn.Module) else ()
    if any(parameter.requires_grad for parameter in own):
        raise TaskError("loss", "has weights of its own, which no client trains: put them in model")
    inputs, targets = trial.few(trial.data.train, training=True)
    outputs = forward(trial.network(), inputs)
    kinds, found = kinds_of(outputs, targets), loss_of(trial, outputs, targets)
    if not isinstance(found, Tensor) or found.dim() or not found.requires_grad:
        text = f"returned {described(found)} for {kinds}: return one number, with its gradient"
        raise TaskError("loss", text)
    if not math.isfinite(loss := found.item()):
        raise TaskError("loss", f"is {loss:g} for the initial model: check inputs and model")
    yield Finding("ok", "loss", f"{loss:.4g} for {kinds} of the initial model")
    watch = _Watch()
    with watch, seeded(0, CPU):
        task.loss(outputs, targets)
    wrong = [text for function, given in watch.given if (text := _wrong_input(function, given))]
    if wrong:
        yield Finding("warning", "loss", wrong[0])
    elif loss < 0:
        text = f"is {loss:.4g} for the initial model, below 0, which no cross-entropy, squared or "
        yield Finding("warning", "loss", f"{text}absolute error is: check what it is given")
    elif loss and _is_sum(trial, outputs, targets, loss):
        text = "is a sum over the examples: a step grows with the size of its batch; give the mean"
        yield Finding("warning", "loss", text)


def loss_of(trial: Trial, outputs: Any, targets: Any) -> Any:
    """Return what the loss returns; TaskError where it fails or changes the targets."""
    kept = copies(targets)
    kinds = kinds_of(outputs, targets)
    with calling("loss", f"for {kinds}"), seeded(0, CPU), warnings.catch_warnings():
        # Torch warns where it stretches outputs and targets to one shape.
        warnings.filterwarnings("error", "Using a target size")
        found = trial.task.loss(outputs, targets)
    if not same(kept, tuple(leaves(targets))):
        raise TaskError("loss", "changes the targets, which all clients share: work on a copy")
    return found


class _Watch(TorchFunctionMode):
    """Keeps what torch's losses are given as outputs, whoever calls them."""

    def __init__(self) -> None:
        super().__init__()
        self.given: list[tuple[Any, Tensor]] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in LOSSES:
            self.given.append((func, args[0] if args else kwargs["input"]))
        return func(*args, **kwargs)


@torch.no_grad()
def _wrong_input(function: Any, given: Tensor) -> str:
    """Return what is wrong with what a loss of torch's is given; empty if nothing is."""
    name = f"torch's {function.__name__}"
    if function is functional.binary_cross_entropy_with_logits:
        is_wrong = is_probability(given) and _is_sigmoid(given)
        text = f"{name} takes logits, and is given values from 0 to 1: leave the sigmoid out"
        return text if is_wrong else ""
    given = given.float()
    sums = (given.exp() if function is functional.nll_loss else given).sum(min(1, given.dim() - 1))
    sum_to_1 = torch.allclose(sums, torch.ones_like(sums), atol=TOLERANCE)
    if function is functional.nll_loss:
        text = f"{name} takes log-probabilities, and is given other values: end the model with "
        return "" if sum_to_1 else f"{text}log_softmax, or take cross_entropy for logits"
    text = f"{name} takes logits, and is given probabilities: leave the softmax out"
    return text if sum_to_1 and is_probability(given) else ""


def _is_sigmoid(given: Tensor) -> bool:
    """Return whether a sigmoid made a tensor, whatever other operations of one tensor followed."""
    node = given.grad_fn
    while node is not None and "Sigmoid" not in node.name() and len(node.next_functions) == 1:
        node = node.next_functions[0][0]
    return node is not None and "Sigmoid" in node.name()


@torch.no_grad()
def _is_sum(trial: Trial, outputs: Any, targets: Any, loss: float) -> bool:
    """Return whether the loss of a batch is the sum of those of its parts."""
    number = len(targets) if isinstance(targets, Tensor) else 0
    if number < 3 or not isinstance(outputs, Tensor) or number_of(outputs) != number:
        return False
    parts = [parts_of(values, number // 3, number) for values in (outputs, targets)]
    try:
        with seeded(0, CPU):
            total = sum(float(trial.task.loss(*pair)) for pair in zip(*parts, strict=True))
    except Exception:  # it takes whole batches only
        return False
    return abs(total - loss) <= TOLERANCE * abs(loss)
