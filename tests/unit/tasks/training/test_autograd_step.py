import pytest
import torch
from torch import nn
from torch.nn import functional

from tasks.mnist import MNIST_CNN
from tasks.training import batch_size
from tasks.training.autograd_step import autograd_step, make_step
from tasks.training.parts import loss_count
from tasks.training.sgd_update import WeightUpdate
from tasks.training.training_settings import TrainingSettings

PLAIN = TrainingSettings(0.0)


def images(count, *shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    targets = torch.randint(0, 10, (count,), generator=generator)
    return torch.randn(count, *shape, generator=generator), targets


def cnn():
    return MNIST_CNN.initial_model(3)


@pytest.mark.parametrize(("momentum", "decay"), [(0.0, 0.0), (0.9, 0.0), (0.0, 0.1), (0.9, 0.1)])
def test_autograd_steps_equal_torch_sgd_to_the_last_bit(momentum, decay):
    reference = cnn()
    optimizer = torch.optim.SGD(
        reference.parameters(), lr=0.1, momentum=momentum, weight_decay=decay, foreach=True
    )
    model = cnn()
    weights = list(model.parameters())
    buffers = [torch.zeros_like(w) for w in weights] if momentum else []
    update = WeightUpdate(
        weights, TrainingSettings(0.0, momentum=momentum, weight_decay=decay), buffers
    )
    step = autograd_step(model, functional.cross_entropy, weights, update)
    for number in range(4):
        inputs, targets = images(8, 1, 28, 28, seed=number)
        optimizer.zero_grad()
        loss = functional.cross_entropy(reference(inputs), targets)
        loss.backward()
        optimizer.step()
        assert step(inputs, targets, 0.1) == loss
    for ours, theirs in zip(weights, reference.parameters(), strict=True):
        assert torch.equal(ours, theirs)


class SharedMemory(nn.Module):
    """Autograd gives `base`, `first` and `rest` views of one gradient, and `scale` one number."""

    def __init__(self):
        super().__init__()
        generator = torch.Generator().manual_seed(1)
        self.base, self.scale, self.first, self.rest = (
            nn.Parameter(torch.randn(size, generator=generator)) for size in (7, 5, 3, 4)
        )

    def forward(self, inputs):
        added = self.base + torch.cat([self.first, self.rest])
        return inputs + added + self.scale.sum()


@pytest.mark.parametrize("limit", [1000, 5])
@pytest.mark.parametrize("changes", [{"weight_decay": 0.1}, {"momentum": 0.9}, {}])
def test_gradients_that_share_memory_are_those_of_torch_sgd(limit, changes, monkeypatch):
    monkeypatch.setattr(batch_size, "MAX_BATCH", limit)
    reference, model = SharedMemory(), SharedMemory()
    optimizer = torch.optim.SGD(reference.parameters(), lr=0.1, **changes)
    weights = list(model.parameters())
    buffers = [torch.zeros_like(w) for w in weights] if "momentum" in changes else []
    settings = TrainingSettings(0.0, **changes)
    step = make_step(model, functional.mse_loss, weights, WeightUpdate(weights, settings, buffers))
    for number in range(3):
        inputs, _ = images(12, 7, seed=number)
        targets = images(12, 7, seed=number + 9)[0].abs()
        optimizer.zero_grad()
        functional.mse_loss(reference(inputs), targets).backward()
        optimizer.step()
        step(inputs, targets, 0.1)
    for ours, theirs in zip(weights, reference.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


def test_large_batch_is_processed_in_parts_with_the_gradient_of_the_whole(monkeypatch):
    inputs, targets = images(23, 1, 28, 28)
    inputs = inputs.double()
    seen, found = [], []
    for limit in (1000, 5):
        monkeypatch.setattr(batch_size, "MAX_BATCH", limit)
        model = cnn().double()
        model.register_forward_hook(lambda _, args, __: seen.append(len(args[0])))
        weights = list(model.parameters())
        count = loss_count(functional.cross_entropy)
        update = WeightUpdate(weights, PLAIN)
        step = make_step(model, functional.cross_entropy, weights, update, count)
        loss = step(inputs, targets, 0.1)
        found.append([loss, *(w.detach() for w in weights)])
    assert seen[-5:] == [5, 5, 5, 5, 3]
    for whole, parts in zip(*found, strict=True):
        # A part's share of the predictions is a float32.
        atol = 2**-24 * whole.abs().max().item()
        torch.testing.assert_close(whole, parts, rtol=1e-6, atol=atol, check_dtype=False)
