"""Local response normalisation across channels, as TensorFlow's tutorial network has it."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d

ALPHA, NEIGHBOURS = 0.001 / 9, 9


class LocalResponseNorm(nn.Module):
    """x / (1 + 0.001 / 9 * the sum of the squares of 9 neighbouring channels) ^ 0.75.

    What `torch.nn.LocalResponseNorm(9, alpha=0.001, beta=0.75, k=1)` computes, with the sum as a
    convolution and a gradient of its own, which is faster on a CPU (results/tasks/README.md).
    """

    band: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        place = torch.arange(channels)
        near = (place[:, None] - place).abs() <= NEIGHBOURS // 2
        self.register_buffer("band", near.float()[:, :, None, None], persistent=False)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the same shape, (n, channels, height, width)."""
        outputs: Tensor = _Normalise.apply(inputs, self.band)[0]
        return outputs


class _Normalise(torch.autograd.Function):
    """y = x s^-3/4 with s = 1 + alpha B x^2, B being the band of neighbouring channels.

    B is symmetric, so dL/dx = dL/dy s^-3/4 - 3/2 alpha x B (dL/dy y / s). Autograd would make the
    same of ten operations, each of which reads and writes all activations.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, band: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        root = conv2d(x.square(), band).mul_(ALPHA).add_(1).rsqrt_()
        scale = root.sqrt().mul_(root)
        return x * scale, root, scale

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs, *output)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        x, band, y, root, scale = ctx.saved_tensors
        shared = conv2d((gradients[0] * y).mul_(root).mul_(root), band)
        return (gradients[0] * scale).sub_(shared.mul_(x), alpha=1.5 * ALPHA), None
