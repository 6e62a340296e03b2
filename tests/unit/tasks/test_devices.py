"""Tensors left on the wrong device, found without a GPU.

The meta device stands for the GPU: its tensors have shapes but no values. It would let operations
mix it with the CPU, so a dispatch mode checks every operation. What needs values, reading them back
and branching on them, is replaced.
"""

import dataclasses

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import tasks
from tasks.base import on_device
from tasks.training import local_training, optimizers
from tasks.training.local_training import TaskClient
from tests.support.made_up_examples import noise
from tests.support.task_clients import settings

DEVICE = torch.device("meta")
CONFIG = {
    "learning-rate": 0.1, "local-epochs": 2, "batch-size": 3, "seed": 1, "server-round": 1,
    "momentum": 0.9, "proximal-mu": 0.1,
}  # fmt: skip
# What may have tensors of several devices: copies between them.
COPIES = {torch.ops.aten.copy_.default, torch.ops.aten._to_copy.default}
# The value of every number that is read from the meta device.
READ = 3


class OneDevice(TorchDispatchMode):
    """Refuses operations on tensors of several devices; those without a dimension are numbers."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        devices = {tensor.device.type for tensor in tensors if tensor.dim()}
        if len(devices) > 1 and func not in COPIES:
            raise RuntimeError(f"{func} on tensors of {sorted(devices)}")
        return func(*args, **(kwargs or {}))


@pytest.fixture
def _no_values(monkeypatch):
    def zeros(tensors):
        return {name: np.zeros(tuple(t.shape), np.float32) for name, t in tensors.items()}

    for module in (local_training, optimizers):
        monkeypatch.setattr(module, "to_arrays", zeros)
    for name, value in (("item", READ), ("__int__", READ), ("__float__", float(READ))):
        read = getattr(torch.Tensor, name)

        def read_or_made_up(tensor, read=read, value=value):
            return value if tensor.is_meta else read(tensor)

        monkeypatch.setattr(torch.Tensor, name, read_or_made_up)


def make_client(task):
    """Return a client on the meta device, and its model."""
    model = task.model()
    split = noise(task, 7)
    train = task.examples(split, DEVICE, training=True)
    rows = torch.arange(7, device=DEVICE)
    test = task.examples(split, DEVICE)
    client = TaskClient(task, lambda: model, dataclasses.replace(train, rows=rows), test)
    return client, model


@pytest.mark.usefixtures("_no_values")
@pytest.mark.parametrize("method", ["train", "gradient", "test"])
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if name == "fashion-lstm" else ())
        for name in tasks.names()
    ],
)
def test_work_of_a_client_is_on_one_device(name, method):
    client, model = make_client(tasks.load(name))
    arrays = {name: array.numpy().copy() for name, array in model.state_dict().items()}
    named = model.named_parameters()
    zeros = {name: np.zeros(tuple(weight.shape), np.float32) for name, weight in named}
    given = [1] if method == "test" else [settings(CONFIG), zeros]
    model.to(DEVICE)
    with OneDevice():
        getattr(client, method)(arrays, *given)


def test_convolutions_on_a_gpu_sum_in_a_fixed_order(monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", False)
    on_device(nn.Linear(1, 1), torch.device("cpu"))
    assert not torch.backends.cudnn.deterministic
    on_device(nn.Linear(1, 1, device="meta"), torch.device("meta"))  # any other than the CPU
    assert torch.backends.cudnn.deterministic
