"""How a gradient changes weights by SGD: momentum, weight decay and the proximal term."""

from collections.abc import Sequence

import torch
from torch import Tensor

from tasks.training.training_settings import TrainingSettings


class GradientTerms:
    """What is added to the gradients before an optimiser takes its step.

    They are first scaled to the limit of their norm over all weights if it is longer; then
    g <- g + o + lambda w + mu (w - w_sent), with FedProx's mu (arXiv 1812.06127).

    Args:
        weights: The weights to train; as they are now, they are w_sent.
        settings: The limit and mu.
        offsets: o, one per weight; none for zero.
        weight_decay: lambda, where the optimiser does not add it.
    """

    def __init__(
        self,
        weights: Sequence[Tensor],
        settings: TrainingSettings,
        offsets: Sequence[Tensor] = (),
        weight_decay: float = 0.0,
    ) -> None:
        self.clip, self.mu, self.decay = settings.gradient_clip, settings.proximal_mu, weight_decay
        self.offsets = dict(zip(weights, offsets, strict=bool(offsets)))
        self.sent = {w: w.detach().clone() for w in weights} if self.mu else {}

    def add(self, weights: Sequence[Tensor], gradients: list[Tensor]) -> None:
        """Change the gradients of some of the weights in place."""
        if self.offsets:
            torch._foreach_add_(gradients, [self.offsets[w] for w in weights])
        if self.decay:
            torch._foreach_add_(gradients, list(weights), alpha=self.decay)
        if self.mu:
            away = torch._foreach_sub(list(weights), [self.sent[w] for w in weights])
            torch._foreach_add_(gradients, away, alpha=self.mu)

    def change_grads(self, weights: Sequence[Tensor]) -> None:
        """Clip and change the ``grad`` of the weights that have one."""
        if self.clip:
            torch.nn.utils.clip_grad_norm_(weights, self.clip)
        if self.offsets or self.decay or self.mu:
            having = [w for w in weights if w.grad is not None]
            for weight in having:
                if weight.grad.is_sparse:  # type: ignore[union-attr]
                    weight.grad = weight.grad.to_dense()  # type: ignore[union-attr]
            self.add(having, [w.grad for w in having])  # type: ignore[misc]


class SGDUpdate:
    """The steps of `torch.optim.SGD`, with products that are added straight to weights.

    v <- m v + g + o + lambda w + mu (w - w_sent), w <- w - eta v; where m is 0, v begins with 0 in
    every step. Only tasks that say ``in_parts`` are trained by it: making an optimiser of torch for
    each client and round takes longer than a small model's step.

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
        self._weights, self._momentum = weights, settings.momentum
        self._terms = GradientTerms(weights, settings, offsets, settings.weight_decay)
        self._buffers = dict(zip(weights, buffers, strict=bool(buffers)))

    @torch.no_grad()
    def step(self, learning_rate: float) -> None:
        """Change the weights that have a ``grad`` by it, and clear it."""
        weights = [w for w in self._weights if w.grad is not None]
        self._terms.change_grads(weights)
        step = [w.grad.to_dense() for w in weights]  # type: ignore[union-attr]
        if self._momentum:
            buffers = [self._buffers[w] for w in weights]
            torch._foreach_mul_(buffers, self._momentum)
            torch._foreach_add_(buffers, step)
            step = list(buffers)
        torch._foreach_add_(weights, step, alpha=-learning_rate)
        for weight in weights:
            weight.grad = None

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
        terms = self._terms
        add_product = Tensor.addmm_ if right.dim() == 2 else Tensor.addmv_
        if self._momentum:
            buffer = self._buffers[weight]
            add_product(buffer, left, right, beta=self._momentum)
            terms.add([weight], [buffer])
            weight.add_(buffer, alpha=-learning_rate)
            return
        away = weight - terms.sent[weight] if terms.mu else None
        if terms.decay:
            weight.mul_(1 - learning_rate * terms.decay)
        if away is not None:
            weight.add_(away, alpha=-learning_rate * terms.mu)
        add_product(weight, left, right, alpha=-learning_rate)
        if terms.offsets:
            weight.add_(terms.offsets[weight], alpha=-learning_rate)
