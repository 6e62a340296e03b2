"""How a gradient changes a weight: SGD with momentum, weight decay and the proximal term."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

# The mean loss of (logits, targets).
Loss = Callable[[Tensor, Tensor], Tensor]


class Update:
    """How a gradient g changes a weight w at learning rate eta.

    v <- m v + g + lambda w + mu (w - w_sent), w <- w - eta v; v is a new 0 in every step where m is
    0.

    Args:
        weights: The weights to train, which are changed in place.
        momentum: The factor m.
        buffers: The buffers v, one per weight, which are changed in place; none where m is 0.
        proximal_mu: The factor mu of FedProx (arXiv 1812.06127); w_sent are the weights now.
        weight_decay: The factor lambda, as in `torch.optim.SGD`.
    """

    def __init__(
        self,
        weights: Sequence[Tensor],
        momentum: float = 0.0,
        buffers: Sequence[Tensor] = (),
        proximal_mu: float = 0.0,
        weight_decay: float = 0.0,
    ) -> None:
        self._momentum, self._mu, self._decay = momentum, proximal_mu, weight_decay
        self._buffers = dict(zip(weights, buffers, strict=bool(buffers)))
        self._sent = {w: w.detach().clone() for w in weights} if proximal_mu else {}

    def add(
        self, weights: Sequence[Tensor], gradients: Sequence[Tensor], learning_rate: float
    ) -> None:
        """Change the weights by their gradients, which may be overwritten."""
        apply_gradients(
            weights,
            gradients,
            learning_rate,
            momentum=self._momentum,
            buffers=[self._buffers[weight] for weight in weights] if self._momentum else [],
            proximal_mu=self._mu,
            sent=[self._sent[weight] for weight in weights] if self._mu else [],
            weight_decay=self._decay,
        )

    def add_product(
        self, weight: Tensor, left: Tensor, right: Tensor, learning_rate: float
    ) -> None:
        """Change a weight by the gradient ``left @ right``.

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
            return
        buffer = self._buffers[weight]
        add_product(buffer, left, right, beta=self._momentum)
        if self._decay:
            buffer.add_(weight, alpha=self._decay)
        if self._mu:
            buffer.add_(weight - self._sent[weight], alpha=self._mu)
        weight.add_(buffer, alpha=-learning_rate)


def apply_gradients(
    weights: Sequence[Tensor],
    gradients: Sequence[Tensor],
    learning_rate: float,
    *,
    momentum: float,
    buffers: Sequence[Tensor],
    proximal_mu: float,
    sent: Sequence[Tensor],
    weight_decay: float,
) -> None:
    """Change weights and momentum buffers in place, by the formula of `Update`.

    Args:
        weights: The weights w.
        gradients: Their gradients g, which may be overwritten.
        learning_rate: The learning rate eta.
        momentum: The factor m.
        buffers: The buffers v; none where m is 0.
        proximal_mu: The factor mu.
        sent: The weights w_sent; none where mu is 0.
        weight_decay: The factor lambda.
    """
    found = list(gradients)
    if weight_decay:
        torch._foreach_add_(found, list(weights), alpha=weight_decay)
    if proximal_mu:
        away = torch._foreach_sub(list(weights), list(sent))
        torch._foreach_add_(found, away, alpha=proximal_mu)
    if momentum:
        torch._foreach_mul_(list(buffers), momentum)
        torch._foreach_add_(list(buffers), found)
        found = list(buffers)
    torch._foreach_add_(list(weights), found, alpha=-learning_rate)
