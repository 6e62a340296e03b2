"""The classes of a model's arrays: trained, fixed, buffer, or another name of one of these.

Every entry of a state dict is exactly one of them. It is decided here, from the task's model, and
both ends follow it: trained arrays and buffers travel between server and clients; fixed arrays do
not, since both ends have them from the task; an alias is whatever its first name is.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tasks.training.transfers import to_arrays

# The length of the fixed arrays' fingerprint, in hexadecimal digits.
FINGERPRINT_LENGTH = 16


@dataclass(frozen=True)
class ModelArrays:
    """The names of a model's arrays by class, each in the order of the state dict.

    Attributes:
        names: All names of the state dict.
        trained: Parameters that require a gradient.
        fixed: Parameters that do not.
        buffers: All that is no parameter, such as batch normalisation's running statistics.
        aliases: For each further name of an array (tied weights, a module under two names) its
            first name.
    """

    names: tuple[str, ...]
    trained: tuple[str, ...]
    fixed: tuple[str, ...]
    buffers: tuple[str, ...]
    aliases: Mapping[str, str]

    @classmethod
    def of(cls, model: nn.Module) -> "ModelArrays":
        """Return the classes of the model's arrays.

        Raises:
            ValueError: The state dict has an entry that is no tensor, or no parameter is trained.
        """
        first_names: dict[int, str] = {}
        aliases: dict[str, str] = {}
        trained, fixed, buffers = list[str](), list[str](), list[str]()
        state = model.state_dict(keep_vars=True)
        for name, tensor in state.items():
            if not isinstance(tensor, Tensor):
                raise ValueError(f"entry {name!r} of the model's state dict is no tensor")
            first = first_names.setdefault(id(tensor), name)
            if first != name:
                aliases[name] = first
            elif not isinstance(tensor, nn.Parameter):
                buffers.append(name)
            else:
                (trained if tensor.requires_grad else fixed).append(name)
        if not trained:
            raise ValueError("no parameter of the model requires a gradient")
        return cls(tuple(state), tuple(trained), tuple(fixed), tuple(buffers), aliases)

    @property
    def sent(self) -> tuple[str, ...]:
        """The names of the arrays that travel."""
        kept = {*self.fixed, *self.aliases}
        return tuple(name for name in self.names if name not in kept)


def read_arrays(model: nn.Module, names: tuple[str, ...]) -> dict[str, NDArray[np.generic]]:
    """Return copies of a model's arrays, in C order.

    Raises:
        ValueError: An array has a dtype that NumPy lacks, such as bfloat16.
    """
    state = model.state_dict()
    for name in names:
        try:
            torch.empty(0, dtype=state[name].dtype).numpy()
        except TypeError:
            dtype = str(state[name].dtype).removeprefix("torch.")
            fix = "which NumPy lacks; convert the model to float32"
            raise ValueError(f"array {name!r} is {dtype}, {fix}") from None
    return dict(zip(names, to_arrays(state[name] for name in names), strict=True))


def fixed_fingerprint(model: nn.Module, arrays: ModelArrays) -> str:
    """Return a fingerprint of the fixed arrays' names and values; empty where there are none."""
    if not arrays.fixed:
        return ""
    digest = hashlib.sha256()
    for name, array in read_arrays(model, arrays.fixed).items():
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()[:FINGERPRINT_LENGTH]
