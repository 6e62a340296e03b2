import pytest
import torch
from torch import nn
from torch.func import grad, vmap

from tasks.local_response_norm import LocalResponseNorm

TORCHS = nn.LocalResponseNorm(9, alpha=0.001, beta=0.75, k=1.0)
OURS = LocalResponseNorm(64)


def activations(scale, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1)) * scale


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("scale", [0.1, 30.0])
def test_values_and_gradients_equal_those_of_torch(scale, layout):
    inputs = activations(scale, 4, 64, 5, 5).contiguous(memory_format=layout).requires_grad_()
    arriving = activations(1.0, 4, 64, 5, 5)
    found = []
    for module in (OURS, TORCHS):
        outputs = module(inputs)
        found.append((outputs.detach(), *torch.autograd.grad(outputs, inputs, arriving)))
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_gradient_equals_that_of_finite_differences():
    module = LocalResponseNorm(12).double()
    inputs = activations(20.0, 2, 12, 2, 2).double().requires_grad_()
    assert torch.autograd.gradcheck(module, inputs, check_undefined_grad=False)


def test_gradients_of_many_batches_at_once_equal_those_of_each():
    inputs = activations(30.0, 3, 4, 64, 5, 5)
    at_once = vmap(grad(lambda x: OURS(x).sin().sum()))(inputs)
    for batch, found in zip(inputs, at_once, strict=True):
        torch.testing.assert_close(found, grad(lambda x: TORCHS(x).sin().sum())(batch))
