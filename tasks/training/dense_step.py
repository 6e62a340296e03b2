"""SGD steps of networks that end in dense layers, without autograd for these layers."""

from functools import lru_cache
from typing import get_args

import torch
from torch import Tensor, nn
from torch.nn import functional

from tasks.training.sgd_update import SGDUpdate

DenseLayer = nn.Linear | nn.ReLU


# The layers before the dense ones, and these, the last of them linear.
SplitModel = tuple[nn.Sequential, list[DenseLayer]]


@lru_cache(maxsize=4)  # a process has few models, and trains each for many clients
def split_model(model: nn.Module) -> SplitModel | None:
    """Return the network in two parts; None if `DenseStep` cannot train it.

    It can train a `torch.nn.Sequential` of which all layers after the last `torch.nn.Flatten` are
    `DenseLayer`, the last of them linear, all their weights are trained and none is used twice.
    """
    if type(model) is not nn.Sequential:
        return None
    dense: list[DenseLayer] = []
    for layer in reversed(model):
        if type(layer) not in get_args(DenseLayer):
            break
        assert isinstance(layer, DenseLayer)
        dense.insert(0, layer)
    before = len(model) - 1 - len(dense)
    if not dense or before < 0 or not isinstance(dense[-1], nn.Linear):
        return None
    flatten = model[before]
    if type(flatten) is not nn.Flatten or (flatten.start_dim, flatten.end_dim) != (1, -1):
        return None
    weights = [weight for layer in model for weight in layer.parameters()]
    if len(set(weights)) < len(weights):
        return None
    if not all(weight.requires_grad for layer in dense for weight in layer.parameters()):
        return None
    if any(isinstance(layer, nn.Linear) and "weight" not in layer._parameters for layer in dense):
        return None  # it is computed from others, as by `torch.nn.utils.weight_norm`
    return model[:before], dense


class DenseStep:
    """Steps of a network that ends in dense layers.

    The gradients of the dense layers' weights, each a product of two small matrices, are added
    straight to the weights or to their momentum buffers. Autograd writes the product to memory
    first and reads it again. In the networks of the FedAvg paper the dense layers have most of the
    weights; for those without convolutions that is most of a step's time.

    Args:
        model: The network, whose loss is the mean cross-entropy.
        update: Changes its weights.
    """

    def __init__(self, model: SplitModel, update: SGDUpdate) -> None:
        self._first, self._dense = model
        self._has_first = any(weight.requires_grad for weight in self._first.parameters())
        self._update = update

    def __call__(self, inputs: Tensor, targets: Tensor, learning_rate: float) -> Tensor:
        """Take one step; return the loss before it."""
        if not self._has_first:
            with torch.no_grad():
                outputs = self._first(inputs)
                return self._dense_step(outputs, targets, learning_rate)[0]
        outputs = self._first(inputs)
        with torch.no_grad():
            loss, gradient = self._dense_step(outputs, targets, learning_rate)
        outputs.backward(gradient)
        self._update.step(learning_rate)  # of the other weights: these have no ``grad``
        return loss

    def _dense_step(
        self, outputs: Tensor, targets: Tensor, learning_rate: float
    ) -> tuple[Tensor, Tensor | None]:
        """Change the dense layers' weights by their gradients.

        Args:
            outputs: Of the layers before them, (n, ...).
            targets: Of the examples.
            learning_rate: The learning rate.

        Returns:
            The loss, and its gradient with respect to the outputs, of the same shape; None where
            the layers before have no weights.
        """
        x = outputs.flatten(1)
        # What each layer's backward pass needs: its input, or its output.
        kept: list[Tensor] = []
        for layer in self._dense:
            if isinstance(layer, nn.Linear):
                kept.append(x)
                x = functional.linear(x, layer.weight, layer.bias)
            else:
                x = x.relu()
                kept.append(x)
        loss, gradient = _cross_entropy_and_gradient(x, targets)
        ones = gradient.new_ones(len(gradient))
        for place in range(len(self._dense) - 1, -1, -1):
            layer, saved = self._dense[place], kept[place]
            if isinstance(layer, nn.ReLU):
                gradient = torch.ops.aten.threshold_backward(gradient, saved, 0)
            else:
                left = gradient.t()
                if place or self._has_first:
                    gradient = gradient @ layer.weight
                self._update.add_product(layer.weight, left, saved, learning_rate)
                if layer.bias is not None:
                    self._update.add_product(layer.bias, left, ones, learning_rate)
        return loss, gradient.view_as(outputs) if self._has_first else None


def _cross_entropy_and_gradient(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return `functional.cross_entropy` and its gradient with respect to the logits (n, classes).

    These are the operations that autograd calls, at less than half of its time for small batches.
    """
    aten = torch.ops.aten
    logs = aten._log_softmax.default(logits, 1, False)
    loss, count = aten.nll_loss_forward.default(logs, targets, None, 1, -100)
    gradient = aten.nll_loss_backward.default(
        torch.ones_like(loss), logs, targets, None, 1, -100, count
    )
    return loss, aten._log_softmax_backward_data.default(gradient, logs, 1, logs.dtype)
