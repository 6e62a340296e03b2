"""How many examples a network should process at a time."""

from collections.abc import Hashable
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook

from tasks.base import Task
from tasks.data.dataset import first_leaf, leaves
from tasks.training.examples import call_model, chosen_of
from tasks.training.random_streams import seeded

# Bytes of the largest output of a layer, beyond which a CPU's caches no longer hold what the layer
# before has written. A convolutional network then takes up to twice the time for the same examples.
MAX_LAYER_BYTES = 12 * 2**20
MAX_BATCH = 1000

# By task, the bytes of a layer's largest output for one example of a shape and type.
_largest: WeakKeyDictionary[Task, dict[Hashable, int]] = WeakKeyDictionary()


def efficient_batch_size(task: Task, model: nn.Module | None, inputs: Any) -> int:
    """Return how many examples to process at a time where the result does not depend on it.

    On a CPU as many as make the largest output of a layer take `MAX_LAYER_BYTES`, but at most
    `MAX_BATCH`; on other devices `MAX_BATCH`.

    Args:
        task: The learning problem.
        model: A network of it, used if the task's networks may be shared; None makes one.
        inputs: Prepared inputs, at least one, on the device that computes; the first is tried, once
            for each shape and type.
    """
    device = first_leaf(inputs).device
    if device.type != "cpu":
        return MAX_BATCH
    known = _largest.setdefault(task, {})
    kind = tuple((array.shape[1:], array.dtype) for array in leaves(inputs))
    if kind not in known:
        tried = model if model is not None and task.shared_model else task.network(0, device)
        with seeded(0, device):
            known[kind] = _largest_output(tried, chosen_of(inputs, slice(1)))
    return min(max(MAX_LAYER_BYTES // known[kind], 1), MAX_BATCH)


def normalises_batches(model: nn.Module) -> bool:
    """Return whether the network has batch normalisation, which needs two examples to train."""
    kind = nn.modules.batchnorm._BatchNorm
    return any(isinstance(module, kind) for module in model.modules())


# Not in inference mode: a model may keep what it makes in its first call, such as a mask.
@torch.no_grad()
def _largest_output(model: nn.Module, example: Any) -> int:
    """Return the bytes of the largest output of a layer for one example, (1, ...)."""
    sizes, training = [1], model.training

    def note(module: nn.Module, received: object, output: object) -> None:
        del module, received
        outputs = output if isinstance(output, tuple) else (output,)
        sizes.extend(x.nbytes for x in outputs if isinstance(x, Tensor))

    with register_module_forward_hook(note):
        call_model(model.eval(), example)
    model.train(training)
    return max(sizes)
