"""Copies between NumPy arrays and tensors on the device that computes.

To and from a CUDA device they go through page-locked memory: the copy is queued behind the device's
other work, and the caller waits once for all the arrays that it reads back. On the CPU they are
plain copies.
"""

from collections.abc import Iterable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def staged(array: NDArray[np.generic], device: torch.device) -> Tensor:
    """Return a copy of the array on the CPU, in page-locked memory if ``device`` is a CUDA device.

    Copy it to the device with ``non_blocking=True``; torch keeps the memory until that is done.
    """
    copy = torch.tensor(array)
    return copy.pin_memory() if device.type == "cuda" else copy


def to_arrays(tensors: Iterable[Tensor]) -> list[NDArray[np.generic]]:
    """Return copies of the tensors, on whatever device they are, as arrays in C order.

    Those of bfloat16, which NumPy lacks, become float32, which holds all their values.
    """
    detached = [
        tensor.detach().float() if tensor.dtype == torch.bfloat16 else tensor.detach()
        for tensor in tensors
    ]
    streams = {torch.cuda.current_stream(tensor.device) for tensor in detached if tensor.is_cuda}
    copies = [
        _read(tensor) if tensor.is_cuda else tensor.numpy().copy(order="C") for tensor in detached
    ]
    for stream in streams:
        stream.synchronize()
    return copies


def _read(tensor: Tensor) -> NDArray[np.generic]:
    """Return an array that a CUDA tensor is being copied to: wait before its values are used."""
    copy = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    return copy.copy_(tensor, non_blocking=True).numpy()
