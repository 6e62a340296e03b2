"""What a network keeps outside its state dict, such as the last hidden state of an RNN.

The clients of a process train one network after the other. Messages bring them the arrays of its
state dict; the rest must not pass from one client to the next.
"""

import types
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from tasks.training.layers import runs_own_code

# The attributes of every module that are dictionaries: its weights, buffers, modules and hooks.
DICTIONARIES = {name for name, value in vars(nn.Module()).items() if isinstance(value, dict)}
# Values that no code changes in place.
PLAIN = (
    bool, int, float, complex, str, bytes, type, type(None), torch.dtype, torch.device, torch.Size,
    types.FunctionType, types.BuiltinFunctionType, types.ModuleType,
)  # fmt: skip


class HiddenState:
    """The attributes and buffers of a network's modules, as they are when this is made.

    A network of torch's own layers has none that change, and costs nothing. Weights are left out:
    they are in the state dict; so is the training mode.

    Args:
        model: The network.

    Attributes:
        shared: Attributes that cannot be copied, such as an open file, by name: what changes in
            them does pass from client to client.
    """

    def __init__(self, model: nn.Module) -> None:
        self.shared: list[str] = []
        self._flags: list[tuple[nn.Parameter, bool]] = []
        self._attributes: list[tuple[nn.Module, dict[str, Any], list[str]]] = []
        self._dicts: list[tuple[dict[str, Any], dict[str, Any]]] = []
        self._tensors: list[tuple[Tensor, Tensor]] = []
        self._versions: list[int] = []
        self._own: dict[int, Any] = {}  # what is not copied along with what refers to it
        if not runs_own_code(model):
            return
        self._flags = [(weight, weight.requires_grad) for weight in model.parameters()]
        parts = [*model.modules(), *model.parameters(), *model.buffers()]
        self._own = {id(part): part for part in parts}
        copies = dict(self._own)
        for name, module in model.named_modules():
            self._keep(name, module, copies)

    def restore(self) -> None:
        """Give the network what it had."""
        for weight, flag in self._flags:
            if weight.requires_grad != flag:
                weight.requires_grad_(flag)
        copies = dict(self._own)
        for module, kept, copied in self._attributes:
            attributes = vars(module)
            for name in attributes.keys() - kept.keys() - {"training"}:
                del attributes[name]
            attributes.update(kept)
            attributes.update({name: deepcopy(kept[name], copies) for name in copied})
        for current, entries in self._dicts:
            current.clear()
            current.update(entries)
        for place, (tensor, values) in enumerate(self._tensors):
            if tensor._version != self._versions[place]:
                with torch.no_grad():
                    tensor.copy_(values)
                self._versions[place] = tensor._version

    def _keep(self, path: str, module: nn.Module, copies: dict[int, Any]) -> None:
        kept: dict[str, Any] = {}
        copied: list[str] = []
        is_torchs = type(module).__module__.startswith("torch.")
        for name, value in vars(module).items():
            if name == "training":
                continue
            kept[name] = value
            if name in DICTIONARIES:
                self._dicts.append((value, dict(value)))
                self._keep_tensors(value)
            elif isinstance(value, Tensor):
                self._keep_tensors({name: value})
            elif not is_torchs and not isinstance(value, PLAIN) and id(value) not in self._own:
                try:
                    kept[name] = deepcopy(value, copies)
                    copied.append(name)
                except Exception:
                    self.shared.append(f"{path}.{name}".lstrip("."))
        self._attributes.append((module, kept, copied))

    def _keep_tensors(self, values: Mapping[str, Any]) -> None:
        for value in values.values():
            if isinstance(value, Tensor) and not isinstance(value, nn.Parameter) and value.is_leaf:
                self._tensors.append((value, value.detach().clone()))
                self._versions.append(value._version)
