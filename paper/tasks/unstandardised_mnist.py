"""MNIST-2NN on pixels scaled to [0, 1] only, for the table fedavg-table1-inputs."""

from dataclasses import replace

from torch import Tensor

from tasks.mnist import MNIST_2NN, standardise


def scale(images: Tensor) -> Tensor:
    """Turn uint8 images (n, 28, 28) into float32 (n, 1, 28, 28) between 0 and 1."""
    return standardise(images, 0.0, 1.0)


TASK = replace(MNIST_2NN, prepare=scale)
