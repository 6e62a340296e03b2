"""The device that models are trained on."""

import torch


def pick_device(name: str) -> torch.device:
    """Return the device for "auto" (the GPU if this process sees one), "cpu" or "cuda"."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)
