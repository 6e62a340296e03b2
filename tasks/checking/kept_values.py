"""What a network keeps outside its state dict, and which of it a pass changes."""

import pickle
from typing import Any

from torch import nn

from tasks.training.hidden_state import DICTIONARIES


def kept_values(model: nn.Module) -> dict[str, bytes]:
    """Return the attributes and unsaved buffers of a network's modules by name, each pickled.

    Of torch's own layers it is the unsaved buffers, and that there is an attribute. What cannot be
    pickled is left out.
    """
    found: dict[str, bytes] = {}
    for path, module in model.named_modules():
        is_torchs = type(module).__module__.startswith("torch.")
        own = {name: None if is_torchs else value for name, value in vars(module).items()}
        values = {name: own[name] for name in own.keys() - DICTIONARIES - {"training"}}
        unsaved = module._non_persistent_buffers_set
        values |= {name: value for name, value in module._buffers.items() if name in unsaved}
        for name, value in values.items():
            if (text := _pickled(value)) is not None:
                found[f"{path}.{name}".lstrip(".")] = text
    return found


def changed_names(before: dict[str, bytes], model: nn.Module, state: set[str]) -> list[str]:
    """Return the names of what a network keeps that has changed, or is new.

    Args:
        before: What `kept_values` returned then.
        model: The network as it is now.
        state: The names of its state dict then.
    """
    now = kept_values(model)
    changed = [name for name, value in now.items() if before.get(name) != value]
    return sorted({*changed, *(model.state_dict().keys() - state)})


def _pickled(value: Any) -> bytes | None:
    try:
        return pickle.dumps(value)
    except Exception:
        return None
