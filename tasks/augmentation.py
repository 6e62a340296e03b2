"""Random image transforms with independent draws for each image of a batch.

torchvision's own random transforms draw once for the whole batch. All draws come from torch's
global random state. Images are tensors (n, channels, height, width).
"""

import torch
from torch import Tensor
from torch.nn import functional


def random_crop(images: Tensor, size: int, padding: int = 0) -> Tensor:
    """Crop each image at a random location.

    Args:
        images: Of any dtype.
        size: Height and width of the crop, in pixels.
        padding: Zeros added around the images first, in pixels.

    Returns:
        (n, channels, size, size).
    """
    images = functional.pad(images, [padding] * 4)
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
