"""Random image transforms that draw for every image of a batch.

torchvision's own random transforms draw once for all images that they are given. These are to be
composed with its others. All draws come from torch's global random state. Images are
(n, channels, height, width).
"""

import torch
from torch import Tensor
from torch.nn import functional


def crop_each(images: Tensor, size: int, padding: int = 0) -> Tensor:
    """Cut a square at a random place out of each image.

    Args:
        images: Of any dtype.
        size: The square's side, in pixels.
        padding: Zeros around the image first, in pixels.

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


def flip_each(images: Tensor) -> Tensor:
    """Mirror half of the images, left to right."""
    chosen = (torch.rand(len(images)) < 0.5).to(images.device)
    return torch.where(chosen[:, None, None, None], images.flip(-1), images)


def brighten_each(images: Tensor, delta: float) -> Tensor:
    """Add to each image of floats a number from [-delta, delta).

    That is TensorFlow's `random_brightness`; nothing is clipped.
    """
    return images + _uniform(images, -delta, delta)


def contrast_each(images: Tensor, lower: float, upper: float) -> Tensor:
    """Scale each image's distance from its channels' means by a factor from [lower, upper).

    That is TensorFlow's `random_contrast`, for floats; nothing is clipped.
    """
    means = images.mean(dim=(-2, -1), keepdim=True)
    return (images - means) * _uniform(images, lower, upper) + means


def whiten_each(images: Tensor) -> Tensor:
    """Give each image of floats mean 0 and variance 1.

    That is TensorFlow's `per_image_standardization`: an image of m numbers is divided by its
    standard deviation, but not by less than 1 / sqrt(m).
    """
    deviation, mean = torch.std_mean(images, dim=(-3, -2, -1), correction=0, keepdim=True)
    return (images - mean) / deviation.clamp_min(images[0].numel() ** -0.5)


def _uniform(images: Tensor, lower: float, upper: float) -> Tensor:
    drawn = torch.rand(len(images), 1, 1, 1) * (upper - lower) + lower
    return drawn.to(images.device)
