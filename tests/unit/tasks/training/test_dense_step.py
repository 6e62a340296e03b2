import copy

import pytest
import torch
from torch import nn
from torch.nn import functional

import tasks
from tasks.base import on_device
from tasks.training.autograd_step import autograd_step, make_step
from tasks.training.dense_step import DenseStep, split_model
from tasks.training.sgd_update import WeightUpdate
from tasks.training.training_settings import TrainingSettings

SHAPES = {
    "mnist-logistic": (1, 28, 28),
    "mnist-2nn": (1, 28, 28),
    "mnist-cnn": (1, 28, 28),
    "fashion-cnn": (1, 28, 28),
    "cifar10-cnn": (3, 24, 24),
    "cifar10-vgg11": (3, 32, 32),
}

PLAIN = TrainingSettings(0.0)


def batches(steps, size, *shape):
    generator = torch.Generator().manual_seed(0)
    for _ in range(steps):
        inputs = torch.randn(size, *shape, generator=generator)
        if inputs.dim() == 4:
            inputs = inputs.contiguous(memory_format=torch.channels_last)
        yield inputs, torch.randint(0, 10, (size,), generator=generator)


def train(kind, model, loss, work, momentum=0.0, mu=0.0, decay=0.0, learning_rate=0.05, offset=0.0):
    """Return the losses, the weights and the momentum buffers after some steps."""
    model = copy.deepcopy(model)
    weights = list(model.parameters())
    buffers = [torch.full_like(w, 0.01) for w in weights] if momentum else []
    settings = TrainingSettings(0.0, momentum=momentum, proximal_mu=mu, weight_decay=decay)
    offsets = [torch.full_like(w, offset) for w in weights] if offset else []
    update = WeightUpdate(weights, settings, buffers, offsets)
    if kind == "dense":
        step = DenseStep(split_model(model), update)
    else:
        make = make_step if kind == "chosen" else autograd_step
        step = make(model, loss, weights, update)
    losses = [step(*batch, learning_rate) for batch in work]
    return [torch.stack(losses), *(w.detach() for w in weights), *buffers]


def assert_same_training(model, loss, work, kind="dense", **settings):
    """In float64, where rounding is far below any other difference."""
    model = copy.deepcopy(model).double()
    work = [(inputs.double(), targets) for inputs, targets in work]
    dense = train(kind, model, loss, work, **settings)
    autograd = train("autograd", model, loss, work, **settings)
    for ours, theirs in zip(dense, autograd, strict=True):
        assert ours.dtype == torch.float64
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
    model = on_device(task.initial_model(1), torch.device("cpu"))
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
    assert_same_training(tasks.load("mnist-2nn").initial_model(1), loss, work, "chosen")


def test_frozen_layers_before_the_dense_layers_do_not_change():
    model = tasks.load("mnist-cnn").initial_model(1)
    for parameter in (model[0].weight, model[3].bias):
        parameter.requires_grad_(False)
    before = copy.deepcopy(model)
    trained = [w for w in model.parameters() if w.requires_grad]
    (batch,) = batches(1, 5, 1, 28, 28)
    DenseStep(split_model(model), WeightUpdate(trained, PLAIN))(*batch, 0.1)
    for (name, ours), theirs in zip(model.named_parameters(), before.parameters(), strict=True):
        assert torch.equal(ours, theirs) == (name in ("0.weight", "3.bias"))


def shared():
    layer = nn.Linear(4, 4)
    return nn.Sequential(nn.Flatten(), layer, nn.ReLU(), layer)


def frozen():
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 4))
    model[1].bias.requires_grad_(False)
    return model


def hooked(register):
    """Return a network with a hook, as `torch.nn.utils.weight_norm` adds one."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 4))
    register(model)
    return model


HOOKS = [
    lambda model: model[1].register_forward_pre_hook(lambda _, inputs: (2 * inputs[0],)),
    lambda model: model[1].register_forward_hook(lambda _, __, output: 2 * output),
    lambda model: model[1].register_full_backward_hook(lambda _, inputs, __: inputs),
    lambda model: model[1].weight.register_hook(lambda gradient: 2 * gradient),
    lambda model: model[1].bias.register_post_accumulate_grad_hook(lambda _: None),
    lambda model: model[0].register_forward_hook(lambda _, __, output: 2 * output),
    lambda model: model.register_forward_hook(lambda _, __, output: 2 * output),
    lambda model: model.register_full_backward_pre_hook(lambda _, outputs: outputs),
    lambda model: setattr(model[1], "forward", lambda x: 2 * x),
]


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
        *map(hooked, HOOKS),
        tasks.load("shakespeare-lstm").model(),
    ],
)
def test_other_networks_are_left_to_autograd(model):
    assert split_model(model) is None
