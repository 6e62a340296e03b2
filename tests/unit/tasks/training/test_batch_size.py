import pytest
import torch

import tasks
from tasks.training.batch_size import efficient_batch_size

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("name", "shape", "largest"),
    [
        ("mnist-cnn", (1, 28, 28), 32 * 28 * 28 * 4),
        ("cifar10-cnn", (3, 24, 24), 64 * 24 * 24 * 4),
        ("cifar10-vgg11", (3, 32, 32), 32 * 32 * 32 * 4),
        ("mnist-2nn", (1, 28, 28), 784 * 4),
    ],
)
def test_largest_layer_of_a_batch_fits_the_limit(name, shape, largest):
    model = tasks.load(name).initial_model(1)
    size = efficient_batch_size(model, torch.ones(3, *shape), CPU)
    assert size == min(12 * 2**20 // largest, 1000)
