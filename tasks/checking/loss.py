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
    CPU,
    Trial,
    copies,
    described,
    forward,
    is_probability,
    kinds_of,
    same,
)
from tasks.data.dataset import leaves
from tasks.training.examples import call_model, number_of, parts_of
from tasks.training.random_streams import seeded

# The losses that are looked at.
LOSSES = (
    functional.cross_entropy,
    functional.nll_loss,
    functional.binary_cross_entropy_with_logits,
)
# Logits may be from 0 to 1 by chance, but not in several networks whose weights are this far apart.
TRIES, SPREAD = 3, 10.0
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
    with torch.no_grad():
        for function, given in _given(trial, outputs, targets):
            if wrong := _wrong_input(trial, inputs, targets, function, given):
                yield Finding("warning", "loss", f"torch's {function.__name__} {wrong}")
                return
        is_sum = loss > 0 and _is_sum(trial, outputs, targets, loss)
    if loss < 0:
        text = f"is {loss:.4g} for the initial model, below 0, which no cross-entropy, squared or "
        yield Finding("warning", "loss", f"{text}absolute error is: check what it is given")
    elif is_sum:
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


def _given(trial: Trial, outputs: Any, targets: Any) -> list[tuple[Any, Tensor]]:
    """Return the losses of torch that the loss calls, and what they are given as outputs."""
    watch = _Watch()
    with watch, seeded(0, CPU):
        trial.task.loss(outputs, targets)
    return watch.given


def _wrong_input(trial: Trial, inputs: Any, targets: Any, function: Any, given: Tensor) -> str:
    """Return what is wrong with what a loss of torch's is given; empty if nothing is."""
    if function is functional.binary_cross_entropy_with_logits:
        is_wrong = is_probability(given) and _has_bounds(trial, inputs, targets)
        text = "takes logits, and is given values from 0 to 1: leave the sigmoid out"
        return text if is_wrong else ""
    given = given.float()
    sums = (given.exp() if function is functional.nll_loss else given).sum(min(1, given.dim() - 1))
    sum_to_1 = torch.allclose(sums, torch.ones_like(sums), atol=TOLERANCE)
    if function is functional.nll_loss:
        text = "takes log-probabilities, and is given other values: end the model with "
        return "" if sum_to_1 else f"{text}log_softmax, or take cross_entropy for logits"
    text = "takes logits, and is given probabilities: leave the softmax out"
    return text if sum_to_1 and is_probability(given) else ""


def _has_bounds(trial: Trial, inputs: Any, targets: Any) -> bool:
    """Return whether what the loss is given is from 0 to 1 whatever the weights are."""
    for seed in range(TRIES):
        model = trial.task.initial_model(seed)
        try:
            with seeded(seed, CPU):
                for weight in model.parameters():
                    weight.add_(SPREAD * torch.randn_like(weight))
                given = _given(trial, call_model(model, inputs), targets)
        except Exception:  # such weights are too large for it: nothing is known
            return False
        if not all(is_probability(values) for _, values in given):
            return False
    return True


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
