import pytest
import torch
from torch import nn

import tasks
from tasks.training import batch_size
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


def test_one_example_that_is_over_the_limit_is_a_batch(monkeypatch):
    monkeypatch.setattr(batch_size, "MAX_LAYER_BYTES", 10)
    assert efficient_batch_size(nn.Sequential(nn.Linear(4, 4)), torch.ones(1, 4), CPU) == 1


def test_other_devices_take_the_largest_batch():
    model = tasks.load("mnist-cnn").initial_model(1)
    inputs = torch.ones(1, 1, 28, 28)
    assert efficient_batch_size(model, inputs, torch.device("cuda")) == 1000


def test_values_of_the_inputs_do_not_count():
    """The network for Shakespeare's lines is as long as the longest of them."""
    model = tasks.load("shakespeare-lstm").initial_model(1)
    short = torch.full((1, 80), 257)
    short[0, 0] = 5
    sizes = {efficient_batch_size(model, x, CPU) for x in (short, torch.zeros_like(short))}
    assert sizes == {12 * 2**20 // (80 * 258 * 4)}


def test_model_stays_in_its_mode_and_random_state_is_not_touched():
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout()).train()
    torch.manual_seed(1)
    efficient_batch_size(model, torch.ones(1, 4), CPU)
    drawn = torch.rand(1)
    torch.manual_seed(1)
    assert model.training
    assert torch.equal(torch.rand(1), drawn)
