"""VGG11* with other inputs and other initial weights, for the table stc-vgg11-fedavg."""

from dataclasses import replace
from functools import partial

import torch
from torch import nn
from torchvision.transforms import v2

from tasks.cifar import CIFAR10_VGG, random_crop, random_horizontal_flip, vgg11_star

SCALED = v2.ToDtype(torch.float32, scale=True)


def pytorch_start() -> nn.Module:
    """Return VGG11* with PyTorch's initial weights, where the authors' code has normal ones."""
    model = vgg11_star()
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d):
            layer.reset_parameters()
    return model


UNAUGMENTED = replace(CIFAR10_VGG, augment=None)
PYTORCH_START = replace(CIFAR10_VGG, model=pytorch_start)
UNSTANDARDISED = replace(
    CIFAR10_VGG,
    prepare=SCALED,
    augment=v2.Compose([partial(random_crop, size=32, padding=4), random_horizontal_flip, SCALED]),
)
