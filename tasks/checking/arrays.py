"""The check of which arrays a model has, and of which class each is."""

from collections.abc import Iterator

from torch import nn

from tasks.checking.finding import Finding, TaskError
from tasks.model_arrays import ModelArrays, read_arrays, state_of


def check_arrays(model: nn.Module) -> Iterator[Finding]:
    """Yield which arrays are trained, fixed, buffers and aliases; TaskError for those refused."""
    try:
        arrays = ModelArrays.of(model)
        read_arrays(model, arrays.names)
    except ValueError as error:
        raise TaskError("model", str(error)) from error
    state = state_of(model)

    def described(names: tuple[str, ...]) -> str:
        count = sum(state[name].numel() for name in names)
        kinds = sorted({str(state[name].dtype).removeprefix("torch.") for name in names})
        return f"{len(names)} ({count:,} entries, {', '.join(kinds)})" if names else "0"

    aliases = "".join(f"; {name} is {first}" for name, first in arrays.aliases.items())
    yield Finding(
        "ok",
        "model",
        f"trained arrays {described(arrays.trained)}, fixed {described(arrays.fixed)}, "
        f"buffers {described(arrays.buffers)}, aliases {len(arrays.aliases)}{aliases}",
    )
