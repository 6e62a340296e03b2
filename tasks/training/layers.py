"""Properties of a network's layers: whether they are torch's own and keep examples apart.

A network of torch's own layers alone does in a forward pass what torch documents. Any other may
keep something between two passes, draw random numbers or compare the examples of a batch.
"""

from collections.abc import Callable
from functools import wraps
from weakref import WeakKeyDictionary

from torch import nn

# Layers, exactly of these types, that compute each example's output from that example alone, and
# keep nothing.
ONE_BY_ONE = (
    nn.Sequential, nn.Identity, nn.Flatten, nn.Unflatten, nn.Linear, nn.Bilinear, nn.Embedding,
    nn.EmbeddingBag, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d,
    nn.ConvTranspose3d, nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d, nn.AvgPool1d, nn.AvgPool2d,
    nn.AvgPool3d, nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d, nn.AdaptiveMaxPool3d,
    nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d, nn.ZeroPad1d,
    nn.ZeroPad2d, nn.ZeroPad3d, nn.ConstantPad1d, nn.ConstantPad2d, nn.ConstantPad3d,
    nn.ReflectionPad1d, nn.ReflectionPad2d, nn.ReflectionPad3d, nn.ReplicationPad1d,
    nn.ReplicationPad2d, nn.ReplicationPad3d, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm,
    nn.LocalResponseNorm, nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d, nn.Dropout,
    nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.Upsample, nn.PixelShuffle,
    nn.PixelUnshuffle, nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.PReLU, nn.RReLU, nn.ELU, nn.CELU,
    nn.SELU, nn.GELU, nn.SiLU, nn.Mish, nn.GLU, nn.Sigmoid, nn.LogSigmoid, nn.Tanh,
    nn.Tanhshrink, nn.Softplus, nn.Softsign, nn.Softshrink, nn.Hardshrink, nn.Hardtanh,
    nn.Hardswish, nn.Hardsigmoid,
)  # fmt: skip
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def asked_once(question: Callable[[nn.Module], bool]) -> Callable[[nn.Module], bool]:
    """Return the question with its answers kept, each as long as there is the model.

    It is asked with every client.
    """
    known: WeakKeyDictionary[nn.Module, bool] = WeakKeyDictionary()

    @wraps(question)
    def answer(model: nn.Module) -> bool:
        if model not in known:
            known[model] = question(model)
        return known[model]

    return answer


def has_hooks(module: nn.Module) -> bool:
    """Return whether a module or its own weights have a hook, or a replaced forward.

    Hooks of modules inside it do not count.
    """
    if "forward" in vars(module) or any(getattr(module, name) for name in HOOKS):
        return True
    return any(
        weight._backward_hooks or weight._post_accumulate_grad_hooks
        for weight in module.parameters(recurse=False)
    )


@asked_once
def runs_own_code(model: nn.Module) -> bool:
    """Return whether a forward or backward pass runs anything but the code of torch's layers."""
    return any(
        has_hooks(module) or not type(module).__module__.startswith("torch.nn.")
        for module in model.modules()
    )


@asked_once
def looks_at_one_example(model: nn.Module) -> bool:
    """Return whether all layers are known to compute an output from one example alone."""
    return not any(
        type(module) not in ONE_BY_ONE or has_hooks(module) or _is_exception(module)
        for module in model.modules()
    )


@asked_once
def normalises_batches(model: nn.Module) -> bool:
    """Return whether the network normalises by the batch's mean and variance."""
    kind = nn.modules.batchnorm._BatchNorm
    return any(isinstance(module, kind) for module in model.modules())


def _is_exception(module: nn.Module) -> bool:
    """Return whether the arguments of a layer of `ONE_BY_ONE` make it another kind."""
    if isinstance(module, nn.Flatten):
        return module.start_dim < 1
    if isinstance(module, nn.Unflatten):
        return not isinstance(module.dim, int) or module.dim < 1
    if isinstance(module, nn.Embedding | nn.EmbeddingBag):
        return module.max_norm is not None  # it changes its weights in the forward pass
    return bool(getattr(module, "track_running_stats", False))
