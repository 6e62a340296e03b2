"""A check that the weights that a network trains stay those that it had at first."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from torch import Tensor, nn

from tasks.model_arrays import ModelArrays, state_of
from tasks.training.layers import runs_own_code


def trained_weights(model: nn.Module, arrays: ModelArrays) -> dict[str, Tensor]:
    """Return the weights that are trained, by name."""
    state = state_of(model)
    return {name: state[name] for name in arrays.trained}


@contextmanager
def staying_trained(
    model: nn.Module, arrays: ModelArrays, weights: Mapping[str, Tensor]
) -> Iterator[None]:
    """Check that what runs inside leaves a network's trained weights what they are.

    Args:
        model: The network.
        arrays: The classes of its arrays.
        weights: Its trained weights, by name.

    Raises:
        ValueError: A weight is no longer trained or is another tensor, or another array is trained.
    """
    if not runs_own_code(model):  # torch's layers leave them as they are
        yield
        return
    try:
        yield
    except RuntimeError:  # torch's, of a weight without a gradient, names no array
        _check(model, arrays, weights)
        raise
    _check(model, arrays, weights)


def _check(model: nn.Module, arrays: ModelArrays, weights: Mapping[str, Tensor]) -> None:
    for name, weight in state_of(model).items():
        trained = isinstance(weight, nn.Parameter) and weight.requires_grad
        before = weights.get(arrays.aliases.get(name, name))
        if before is (weight if trained else None):
            continue
        change = "is trained now" if trained else "is no longer trained"
        if trained and before is not None:
            change = "is another tensor now"
        fix = "model() must return it as it is trained for the whole run"
        raise ValueError(f"array {name!r} {change}: the model's code changed it; {fix}")
