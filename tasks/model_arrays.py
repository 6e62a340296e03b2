"""The classes of a model's arrays: trained, fixed, buffer, or another name of one of these.

Every entry of a state dict is exactly one of them. It is decided here, from the task's model, for
server and clients: trained arrays and buffers are sent; fixed arrays are not, since both have them
from the task; an alias has the class of its first name.
"""

import hashlib
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, combinations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

# Arrays by name.
Arrays = dict[str, NDArray[np.generic]]
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
        aliases: For each further name of an array (tied weights, the same memory, a module under
            two names) its first name.
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
            ValueError: As for `aliases_of`, the state dict has an entry that is no tensor or has no
                shape yet, or no parameter is trained.
        """
        state = state_of(model)
        for name, tensor in state.items():
            if not isinstance(tensor, Tensor):
                raise ValueError(f"entry {name!r} of the model's state dict is no tensor")
            if is_lazy(tensor):
                fix = "run an example through the network in model()"
                raise ValueError(f"array {name!r} has no shape yet: {fix}")
        aliases = aliases_of(state)
        own = {name: tensor for name, tensor in state.items() if name not in aliases}
        parameters = {name: own[name] for name in own if isinstance(own[name], nn.Parameter)}
        trained = tuple(name for name, weight in parameters.items() if weight.requires_grad)
        fixed = tuple(name for name in parameters if name not in trained)
        if not trained:
            raise ValueError("no parameter of the model requires a gradient")
        buffers = tuple(name for name in own if name not in parameters)
        return cls(tuple(state), trained, fixed, buffers, aliases)

    @property
    def sent(self) -> tuple[str, ...]:
        """The names of the arrays that travel."""
        kept = {*self.fixed, *self.aliases}
        return tuple(name for name in self.names if name not in kept)


def state_of(model: nn.Module) -> dict[str, Tensor]:
    """Return the entries of the model's state dict, the model's own tensors, by name.

    The names are those of the network itself: `torch.compile` puts "_orig_mod." into them, and
    `torch.nn.DataParallel` begins them with "module.", with which it could not load them.
    """
    state: dict[str, Tensor] = model.state_dict(keep_vars=True)
    outer = "module." if isinstance(model, nn.DataParallel) else ""
    names = (name.removeprefix(outer).replace("_orig_mod.", "") for name in state)
    return dict(zip(names, state.values(), strict=True))


def tie(model: nn.Module, aliases: Mapping[str, str]) -> None:
    """Make each array of the model that has two names a single tensor under both.

    Weights whose `data` were made the same memory have a gradient each, of which the sum is meant.

    Args:
        model: The network, which is changed.
        aliases: What `aliases_of` returned of its state dict.
    """
    state = model.state_dict(keep_vars=True)
    for name, first in aliases.items():
        path, _, own = name.rpartition(".")
        setattr(model.get_submodule(path), own, state[first])


def aliases_of(state: Mapping[str, Tensor]) -> dict[str, str]:
    """Return the first name of each array of a state dict that is there under an earlier name, too.

    Raises:
        ValueError: A trained array is also there as one that is not trained.
    """
    first: dict[Hashable, str] = {}
    aliases: dict[str, str] = {}
    for name, tensor in state.items():
        known = first.setdefault(_memory(tensor), name)
        if known != name:
            if tensor.requires_grad != state[known].requires_grad:
                raise ValueError(f"arrays {known!r} and {name!r} are one, but only one is trained")
            aliases[name] = known
    return aliases


def overlapping(state: Mapping[str, Tensor], names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield pairs of these arrays that have some entries in common, such as views of one."""
    by_storage: dict[int, list[str]] = {}
    for name in names:
        by_storage.setdefault(_storage(state[name]), []).append(name)
    by_storage.pop(0, None)
    for one, other in chain.from_iterable(combinations(group, 2) for group in by_storage.values()):
        size = len(state[one].untyped_storage()) // state[one].element_size()
        places = torch.arange(size)
        taken = [
            places.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset()).flatten()
            for tensor in (state[one], state[other])
        ]
        if torch.isin(*taken).any():
            yield one, other


def _storage(tensor: Tensor) -> int:
    """Return where the tensor's memory begins; 0 if it has none, or is sparse."""
    return tensor.untyped_storage().data_ptr() if tensor.layout == torch.strided else 0


def _memory(tensor: Tensor) -> Hashable:
    """Return what two tensors share if they are the same array."""
    storage = _storage(tensor)
    if not storage:  # it has no values, or they are not contiguous
        return id(tensor)
    view = (tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype)
    return tensor.device, storage, *view


def load_arrays(model: nn.Module, arrays: Mapping[str, NDArray[np.generic]]) -> None:
    """Copy arrays into the model's arrays of the same names.

    Raises:
        ValueError: The model has no array of that name, or its shape differs.
    """
    state = state_of(model)
    with torch.no_grad():
        for name, array in arrays.items():
            if name not in state:
                raise ValueError(f"the model has no array {name!r}")
            target = state[name]
            if tuple(target.shape) != array.shape:
                raise ValueError(f"array {name!r} is {array.shape}, not {tuple(target.shape)}")
            target.copy_(torch.tensor(array))
            target.grad = None  # a client that was interrupted may have left one


def read_arrays(model: nn.Module, names: tuple[str, ...]) -> Arrays:
    """Return copies of a model's arrays, in C order; those of bfloat16 as float32.

    Raises:
        ValueError: An array has another dtype that NumPy lacks, such as float8.
    """
    state = state_of(model)
    try:
        return to_arrays({name: state[name] for name in names})
    except TypeError as error:
        raise ValueError(f"{error}, which NumPy lacks: convert the model to float32") from error


def to_arrays(tensors: Mapping[str, Tensor]) -> Arrays:
    """Return copies of the tensors, on whatever device they are, as arrays in C order.

    Those of bfloat16, which NumPy lacks, become float32, which holds all their values.
    """
    copies = {}
    for name, tensor in tensors.items():
        values = tensor.detach().float() if tensor.dtype == torch.bfloat16 else tensor.detach()
        copies[name] = values.to("cpu", non_blocking=True)
    if any(tensor.is_cuda for tensor in tensors.values()):
        torch.cuda.synchronize()  # once for all of them
    return {name: copy.numpy().copy(order="C") for name, copy in copies.items()}


def fixed_fingerprint(model: nn.Module, arrays: ModelArrays) -> str:
    """Return a fingerprint of the fixed arrays' names and values; empty if there are none."""
    if not arrays.fixed:
        return ""
    digest = hashlib.sha256()
    for name, array in read_arrays(model, arrays.fixed).items():
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()[:FINGERPRINT_LENGTH]
