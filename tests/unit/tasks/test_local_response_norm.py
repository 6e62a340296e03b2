import pytest
import torch
from torch import nn

from tasks.cifar import LocalResponseNorm


def activations(scale, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1)) * scale


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("scale", [0.1, 30.0])
def test_values_and_gradients_equal_those_of_torch(scale, layout):
    inputs = activations(scale, 4, 64, 5, 5).contiguous(memory_format=layout).requires_grad_()
    arriving = activations(1.0, 4, 64, 5, 5)
    found = []
    for module in (LocalResponseNorm(64), nn.LocalResponseNorm(9, alpha=0.001, k=1.0)):
        outputs = module(inputs)
        found.append((outputs.detach(), *torch.autograd.grad(outputs, inputs, arriving)))
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs)
