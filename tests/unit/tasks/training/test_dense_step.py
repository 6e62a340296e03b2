import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import tasks
from tasks.base import Task
from tasks.model_arrays import ModelArrays
from tasks.training.dense_step import DenseStep, split_model
from tasks.training.optimizer_steps import take_steps
from tasks.training.sgd_update import SGDUpdate
from tasks.training.training_settings import TrainingSettings

SHAPES = {
    "mnist-logistic": (1, 28, 28),
    "mnist-2nn": (1, 28, 28),
    "mnist-cnn": (1, 28, 28),
    "fashion-cnn": (1, 28, 28),
    "cifar10-cnn": (3, 24, 24),
    "cifar10-vgg11": (3, 32, 32),
}

PLAIN = TrainingSettings()


def batches(steps, size, *shape):
    generator = torch.Generator().manual_seed(0)
    for _ in range(steps):
        inputs = torch.randn(size, *shape, generator=generator)
        if inputs.dim() == 4:
            inputs = inputs.contiguous(memory_format=torch.channels_last)
        yield inputs, torch.randint(0, 10, (size,), generator=generator)


def train(task, model, work, momentum=0.0, mu=0.0, decay=0.0, learning_rate=0.05, offset=0.0):
    """Return the mean loss and the weights after some steps."""
    model = copy.deepcopy(model)
    settings = TrainingSettings(
        learning_rate=learning_rate, momentum=momentum, proximal_mu=mu, weight_decay=decay
    )
    offsets = {name: np.full(w.shape, offset) for name, w in model.named_parameters() if offset}
    rates = settings.rates(len(work))
    loss = take_steps(task, model, ModelArrays.of(model), work, rates, settings, {}, offsets)
    return [torch.tensor(loss), *(w.detach() for w in model.parameters())]


def assert_same_training(model, loss, work, **settings):
    """In float64, where rounding is far below any other difference."""
    model = copy.deepcopy(model).double()
    work = [(inputs.double(), targets) for inputs, targets in work]
    task = Task("own", lambda: copy.deepcopy(model), None, None, 0.1, loss=loss)
    dense = train(replace(task, in_parts=True), model, work, **settings)
    plain = train(task, model, work, **settings)
    for ours, theirs in zip(dense, plain, strict=True):
        assert ours.dtype == torch.float64 or not ours.dim()
        torch.testing.assert_close(ours, theirs, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize(
    ("momentum", "mu", "decay", "offset"),
    [
        (0.0, 0.0, 0.0, 0.0), (0.9, 0.0, 0.3, 0.0), (0.0, 0.7, 0.0, 0.02), (0.0, 0.7, 0.3, 0.0),
        (0.9, 0.7, 0.3, 0.02),
    ],
)  # fmt: skip
def test_steps_equal_those_of_autograd_for_every_task(name, momentum, mu, decay, offset):
    task = tasks.load(name)
    model = task.network(1, torch.device("cpu"))
    assert split_model(model)
    work = list(batches(3, 6, *SHAPES[name]))
    settings = {"momentum": momentum, "mu": mu, "decay": decay, "offset": offset}
    assert_same_training(model, task.loss, work, **settings)


@pytest.mark.parametrize(
    "layers",
    [
        [nn.Flatten(), nn.Linear(12, 10, bias=False)],
        [nn.Flatten(), nn.ReLU(), nn.Linear(12, 10)],
        [nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(16, 10)],
        [nn.Flatten(), nn.Linear(12, 9), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(9, 10)],
    ],
)
def test_steps_equal_those_of_autograd_for_other_layers(layers):
    torch.manual_seed(3)
    model = nn.Sequential(*copy.deepcopy(layers))
    for layer in model:
        if hasattr(layer, "reset_parameters"):
            layer.reset_parameters()
    assert split_model(model)
    assert_same_training(model, functional.cross_entropy, list(batches(4, 5, 3, 2, 2)))


def mean_square(outputs, targets):
    return (outputs - functional.one_hot(targets, 10)).square().mean()


def without_the_first_target(inputs, targets):
    return inputs, torch.cat([torch.tensor([-100]), targets[1:]])


def as_probabilities(inputs, targets):
    return inputs, functional.one_hot(targets, 10).float()


@pytest.mark.parametrize(
    ("loss", "change"),
    [
        (mean_square, None),
        (functional.cross_entropy, without_the_first_target),
        (functional.cross_entropy, as_probabilities),
    ],
)
def test_steps_equal_those_of_autograd_for_other_losses_and_targets(loss, change):
    work = [change(*batch) if change else batch for batch in batches(3, 5, 1, 28, 28)]
    assert_same_training(tasks.load("mnist-2nn").initial_model(1), loss, work)


def test_frozen_layers_before_the_dense_layers_do_not_change():
    model = tasks.load("mnist-cnn").initial_model(1)
    for parameter in (model[0].weight, model[3].bias):
        parameter.requires_grad_(False)
    before = copy.deepcopy(model)
    trained = [w for w in model.parameters() if w.requires_grad]
    (batch,) = batches(1, 5, 1, 28, 28)
    DenseStep(split_model(model), SGDUpdate(trained, PLAIN))(*batch, 0.1)
    for (name, ours), theirs in zip(model.named_parameters(), before.parameters(), strict=True):
        assert torch.equal(ours, theirs) == (name in ("0.weight", "3.bias"))


def shared():
    layer = nn.Linear(4, 4)
    return nn.Sequential(nn.Flatten(), layer, nn.ReLU(), layer)


def frozen():
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 4))
    model[1].bias.requires_grad_(False)
    return model


class Residual(nn.Sequential):
    def forward(self, inputs):
        return inputs + super().forward(inputs)


@pytest.mark.parametrize(
    "model",
    [
        nn.Linear(4, 4),
        nn.Sequential(nn.Linear(4, 4)),
        nn.Sequential(nn.Flatten(), nn.Linear(4, 4), nn.ReLU()),
        nn.Sequential(nn.Flatten(), nn.Linear(4, 4), nn.Tanh()),
        nn.Sequential(nn.Flatten(), nn.Dropout(), nn.Linear(4, 4)),
        nn.Sequential(nn.Flatten(2), nn.Linear(4, 4)),
        Residual(nn.Flatten(), nn.Linear(4, 4)),
        shared(),
        frozen(),
        tasks.load("shakespeare-lstm").model(),
    ],
)
def test_other_networks_are_left_to_autograd(model):
    assert split_model(model) is None
