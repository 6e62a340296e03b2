"""CIFAR-10 with the FedAvg paper's network and with STC's VGG11*.

McMahan et al. (arXiv 1602.05629v4, section 3) take the model of TensorFlow's tutorial and its
preprocessing; its code says what the paper does not (shared initialisation scales, normalisation).
Its weight decay and its moving average of weights are not part of the paper's algorithm and are
left out. Sattler et al. (arXiv 1903.02891) take VGG11*; its details are those of their code.
"""

import math
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d, pad
from torchvision.transforms import v2

from tasks.base import Task
from tasks.data.cifar import CIFAR10

# torchvision's own random transforms draw once for the whole batch; these draw for each image of
# it, tensors (n, channels, height, width), from torch's global random state.


def random_crop(images: Tensor, size: int, padding: int = 0) -> Tensor:
    """Crop each image at a random location.

    Args:
        images: Of any dtype.
        size: Height and width of the crop, in pixels.
        padding: Zeros added around the images first, in pixels.

    Returns:
        (n, channels, size, size).
    """
    images = pad(images, [padding] * 4)
    count, channels, height, width = images.shape
    within = torch.arange(size)
    rows = torch.randint(height - size + 1, (count, 1)) + within
    columns = torch.randint(width - size + 1, (count, 1)) + within
    image = torch.arange(count)[:, None, None, None]
    channel = torch.arange(channels)[None, :, None, None]
    index = (image, channel, rows[:, None, :, None], columns[:, None, None, :])
    return images[tuple(part.to(images.device) for part in index)]


def random_horizontal_flip(images: Tensor) -> Tensor:
    """Flip each image left to right with probability 0.5."""
    chosen = (torch.rand(len(images)) < 0.5).to(images.device)
    return torch.where(chosen[:, None, None, None], images.flip(-1), images)


def random_brightness(images: Tensor, delta: float) -> Tensor:
    """Add a number from [-delta, delta) to each image of floats.

    As TensorFlow's `random_brightness`; nothing is clipped.
    """
    return images + _uniform(images, -delta, delta)


def random_contrast(images: Tensor, lower: float, upper: float) -> Tensor:
    """Scale each image's distance from its channels' means by a factor from [lower, upper).

    As TensorFlow's `random_contrast`, for floats; nothing is clipped.
    """
    means = images.mean(dim=(-2, -1), keepdim=True)
    return (images - means) * _uniform(images, lower, upper) + means


def per_image_standardization(images: Tensor) -> Tensor:
    """Scale each image of floats to mean 0 and variance 1.

    As TensorFlow's `per_image_standardization`: an image of m numbers is divided by its standard
    deviation, but not by less than 1 / sqrt(m).
    """
    deviation, mean = torch.std_mean(images, dim=(-3, -2, -1), correction=0, keepdim=True)
    return (images - mean) / deviation.clamp_min(images[0].numel() ** -0.5)


def _uniform(images: Tensor, lower: float, upper: float) -> Tensor:
    drawn = torch.rand(len(images), 1, 1, 1) * (upper - lower) + lower
    return drawn.to(images.device)


FLOATS = v2.ToDtype(torch.float32)  # from uint8, values 0 to 255
# The tutorial's: the central 24 x 24 pixels; while training a random crop, flipped, with brightness
# changed by up to 63 of 255 and contrast by a factor of 0.2 to 1.8.
CENTRAL = v2.Compose([v2.CenterCrop(24), FLOATS, per_image_standardization])
AUGMENTED_24 = v2.Compose(
    [
        partial(random_crop, size=24),
        random_horizontal_flip,
        FLOATS,
        partial(random_brightness, delta=63),
        partial(random_contrast, lower=0.2, upper=1.8),
        per_image_standardization,
    ]
)
# The STC authors': standardized by the training set; while training randomly cropped and flipped.
STANDARD = v2.Compose(
    [
        v2.ToDtype(torch.float32, scale=True),
        v2.Normalize((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
    ]
)
AUGMENTED_32 = v2.Compose(
    [partial(random_crop, size=32, padding=4), random_horizontal_flip, STANDARD]
)

# Of the tutorial's local response normalisation.
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


def paper_cnn() -> nn.Module:
    """Return the FedAvg paper's network, by its code 1,068,298 parameters ("about 10^6").

    Two 5x5 convolutions of 64 channels, each with 3x3 pooling and local response normalisation,
    then 384, 192 and 10 units; weights from truncated normal distributions.
    """
    network = nn.Sequential(
        nn.Conv2d(3, 64, kernel_size=5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(3, stride=2, ceil_mode=True),  # TensorFlow's "SAME"
        LocalResponseNorm(64),
        nn.Conv2d(64, 64, kernel_size=5, padding=2),
        nn.ReLU(),
        LocalResponseNorm(64),
        nn.MaxPool2d(3, stride=2, ceil_mode=True),
        nn.Flatten(),
        nn.Linear(6 * 6 * 64, 384),
        nn.ReLU(),
        nn.Linear(384, 192),
        nn.ReLU(),
        nn.Linear(192, 10),
    )
    scales = ((0, 0.05, 0.0), (4, 0.05, 0.1), (9, 0.04, 0.1), (11, 0.04, 0.1), (13, 1 / 192, 0.0))
    for place, deviation, bias in scales:
        layer = network[place]
        assert isinstance(layer, nn.Conv2d | nn.Linear)
        assert layer.bias is not None
        nn.init.trunc_normal_(layer.weight, std=deviation, a=-2 * deviation, b=2 * deviation)
        nn.init.constant_(layer.bias, bias)
    return network


def vgg11_star() -> nn.Module:
    """Return STC's VGG11*: 865,482 parameters, no dropout, no batch normalisation."""
    layers: list[nn.Module] = []
    channels = 3
    for width in (32, 0, 64, 0, 128, 128, 0, 128, 128, 0, 128, 128, 0):  # 0 is pooling
        if not width:
            layers.append(nn.MaxPool2d(2))
            continue
        convolution = nn.Conv2d(channels, width, kernel_size=3, padding=1)
        nn.init.normal_(convolution.weight, std=math.sqrt(2 / (9 * width)))
        assert convolution.bias is not None
        nn.init.zeros_(convolution.bias)
        layers += [convolution, nn.ReLU()]
        channels = width
    return nn.Sequential(
        *layers,
        nn.Flatten(),
        nn.Linear(128, 128),
        nn.ReLU(),
        nn.Linear(128, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )


# No image depends on others here, and the networks keep nothing.
plain_task = partial(Task, in_parts=True, shared_model=True, channels_last=True)
CIFAR10_CNN = plain_task(
    "cifar10-cnn",
    paper_cnn,
    CIFAR10.load,
    CENTRAL,
    learning_rate=0.15,
    augment=AUGMENTED_24,
    target=0.8,
    seconds_per_example=1.6e-3,
)
CIFAR10_VGG = plain_task(
    "cifar10-vgg11",
    vgg11_star,
    CIFAR10.load,
    STANDARD,
    learning_rate=0.016,
    augment=AUGMENTED_32,
    seconds_per_example=2.2e-3,
)
