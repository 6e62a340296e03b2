"""How a gradient changes a weight: SGD with momentum, weight decay and the proximal term."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from tasks.training.training_settings import TrainingSettings

# The loss of (outputs, targets).
Loss = Callable[[Any, Any], Tensor]


def gradients(
    outputs: Tensor, weights: Sequence[Tensor], output_gradient: Tensor | None = None
) -> list[Tensor]:
    """Return the gradients of outputs by weights, dense tensors which may be overwritten.

    `torch.autograd.grad` gives both terms of a sum the same tensor, and a sum's entries one number.

    Args:
        outputs: What to differentiate.
        weights: By these; the gradient is zero for a weight that the outputs do not depend on.
        output_gradient: The gradient by the outputs, of their shape; None for a single number.
    """
    found = torch.autograd.grad(
        outputs, weights, output_gradient, allow_unused=True, materialize_grads=True
    )
    own, memories = [], set()
    for gradient in found:
        dense = gradient.to_dense() if gradient.is_sparse else gradient
        memory = dense.untyped_storage().data_ptr()
        shared = memory in memories or 0 in dense.stride()
        own.append(dense.clone() if shared else dense)
        memories.add(memory)
    return own


class WeightUpdate:
    """How a gradient g changes a weight w at learning rate eta.

    v <- m v + g + o + lambda w + mu (w - w_sent), w <- w - eta v; where m is 0, v begins with 0 in
    every step. The momentum m, the weight decay lambda (as in `torch.optim.SGD`) and FedProx's mu
    (arXiv 1812.06127) are settings; w_sent are the weights when this is made. Where there is a
    limit, g is first scaled to that norm over all weights if it is longer, as by
    `torch.nn.utils.clip_grad_norm_`.

    Args:
        weights: The weights to train, which are changed in place.
        settings: m, lambda, mu and the limit of the gradient's norm.
        buffers: The buffers v, one per weight, which are changed in place; none where m is 0.
        offsets: o, added to the gradients, one per weight; none for zero.
    """

    def __init__(
        self,
        weights: Sequence[Tensor],
        settings: TrainingSettings,
        buffers: Sequence[Tensor] = (),
        offsets: Sequence[Tensor] = (),
    ) -> None:
        self._momentum, self._mu = settings.momentum, settings.proximal_mu
        self._clip = settings.gradient_clip
        self._decay = settings.weight_decay
        self._buffers = dict(zip(weights, buffers, strict=bool(buffers)))
        self._offsets = dict(zip(weights, offsets, strict=bool(offsets)))
        self._sent = {w: w.detach().clone() for w in weights} if self._mu else {}

    @property
    def is_linear(self) -> bool:
        """Whether a weight's gradient may be added by itself, in parts (`add_product`)."""
        return not self._clip

    def add(
        self, weights: Sequence[Tensor], gradients: Sequence[Tensor], learning_rate: float
    ) -> None:
        """Change some of the weights by their gradients, which may be overwritten."""
        step = list(gradients)
        self._correct(step, weights)
        if self._momentum:
            buffers = [self._buffers[w] for w in weights]
            torch._foreach_mul_(buffers, self._momentum)
            torch._foreach_add_(buffers, step)
            step = buffers
        torch._foreach_add_(list(weights), step, alpha=-learning_rate)

    def _correct(self, step: list[Tensor], weights: Sequence[Tensor]) -> None:
        """Clip gradients, and add the offsets and the terms of decay and mu to them."""
        if self._clip:
            norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(step)))
            torch._foreach_mul_(step, torch.clamp(self._clip / (norm + 1e-6), max=1.0))
        if self._offsets:
            torch._foreach_add_(step, [self._offsets[w] for w in weights])
        if self._decay:
            torch._foreach_add_(step, list(weights), alpha=self._decay)
        if self._mu:
            away = torch._foreach_sub(list(weights), [self._sent[w] for w in weights])
            torch._foreach_add_(step, away, alpha=self._mu)

    def add_product(
        self, weight: Tensor, left: Tensor, right: Tensor, learning_rate: float
    ) -> None:
        """Change a weight by the gradient ``left @ right``, which is not written to memory.

        Args:
            weight: A weight (a, b) or (a,).
            left: (a, n).
            right: (n, b) or (n,).
            learning_rate: The learning rate.
        """
        add_product = Tensor.addmm_ if right.dim() == 2 else Tensor.addmv_
        if not self._momentum:
            away = weight - self._sent[weight] if self._mu else None
            if self._decay:
                weight.mul_(1 - learning_rate * self._decay)
            if away is not None:
                weight.add_(away, alpha=-learning_rate * self._mu)
            add_product(weight, left, right, alpha=-learning_rate)
            if self._offsets:
                weight.add_(self._offsets[weight], alpha=-learning_rate)
            return
        buffer = self._buffers[weight]
        add_product(buffer, left, right, beta=self._momentum)
        if self._offsets:
            buffer.add_(self._offsets[weight])
        if self._decay:
            buffer.add_(weight, alpha=self._decay)
        if self._mu:
            buffer.add_(weight - self._sent[weight], alpha=self._mu)
        weight.add_(buffer, alpha=-learning_rate)
