"""A task without a word of its own is trained as a plain loop of torch trains it, bit for bit."""

import dataclasses
import functools

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from tasks.base import Task
from tasks.mnist import MNIST_CNN
from tasks.training import batch_size
from tasks.training.examples import Examples
from tasks.training.local_training import TaskClient
from tasks.training.optimizers import check_optimizer
from tasks.training.random_streams import derive_seed, seeded, torch_generator
from tests.support import networks
from tests.support.task_clients import fit, gradient

CPU = torch.device("cpu")


class Reentrant(nn.Module):
    """A block under reentrant gradient checkpointing."""

    def __init__(self):
        super().__init__()
        self.block = nn.Sequential(nn.Linear(6, 16), nn.ReLU())
        self.out = nn.Linear(16, 3)

    def forward(self, x):
        return self.out(checkpoint(self.block, x.clone().requires_grad_(), use_reentrant=True))


class Experts(nn.Module):
    """Each example goes to one of four experts: in a small batch some have no gradient."""

    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(6, 4)
        self.experts = nn.ModuleList(nn.Linear(6, 3) for _ in range(4))

    def forward(self, x):
        weight = self.gate(x).softmax(1)
        chosen, out = weight.argmax(1), x.new_zeros(len(x), 3)
        for number, expert in enumerate(self.experts):
            own = chosen == number
            if own.any():
                out[own] = expert(x[own]) * weight[own, number, None]
        return out


class StochasticDepth(nn.Module):
    """A skipped block has no gradient."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(6, 6) for _ in range(4))
        self.out = nn.Linear(6, 3)

    def forward(self, x):
        for block in self.blocks:
            if not self.training or torch.rand(()) < 0.6:
                x = x + torch.relu(block(x))
        return self.out(x)


class Unused(nn.Module):
    """A head for another stage, which torch leaves as it is."""

    def __init__(self):
        super().__init__()
        self.out, self.pretraining = nn.Linear(6, 3), nn.Linear(6, 6)

    def forward(self, x):
        return self.out(x)


class Handle(nn.Module):
    """Keeps the handle of a hook, as transformers' models do."""

    def __init__(self):
        super().__init__()
        self.out = nn.Linear(6, 3)
        self.handle = self.out.register_forward_hook(lambda module, inputs, output: 2 * output)

    def forward(self, x):
        return self.out(x)


class Hooked(nn.Module):
    """Hooks of weights: one on the gradient, one for when it has been accumulated."""

    def __init__(self):
        super().__init__()
        self.out = nn.Linear(6, 3)
        self.out.weight.register_hook(lambda gradient: 2 * gradient)
        self.out.bias.register_post_accumulate_grad_hook(self.triple)

    @staticmethod
    def triple(weight):
        weight.grad.mul_(3)

    def forward(self, x):
        return self.out(x)


class SharedMemory(nn.Module):
    """Autograd gives `base`, `first` and `rest` views of one gradient, and `scale` one number."""

    def __init__(self):
        super().__init__()
        sizes = {"base": 6, "scale": 5, "first": 2, "rest": 4}
        for name, size in sizes.items():
            self.register_parameter(name, nn.Parameter(torch.randn(size)))
        self.out = nn.Linear(6, 3)

    def forward(self, inputs):
        added = self.base + torch.cat([self.first, self.rest])
        return self.out(inputs + added + self.scale.sum())


class Counting(nn.Module):
    """Keeps what it has seen, outside its state dict."""

    def __init__(self):
        super().__init__()
        self.out, self.seen = nn.Linear(6, 3), 0

    def forward(self, x):
        self.seen += len(x)
        return self.out(x) * self.seen


class View(nn.Module):
    """A network as in the tutorials: a view after a convolution."""

    def __init__(self):
        super().__init__()
        self.conv, self.out = nn.Conv2d(1, 4, 3), nn.Linear(4 * 6 * 6, 4)

    def forward(self, x):
        return self.out(torch.relu(self.conv(x)).view(-1, 4 * 6 * 6))


class MuonAdamW(torch.optim.Optimizer):
    """Muon for matrices, which torch has from 2.9, and AdamW for the rest, as Muon's page says."""

    of_matrices = getattr(torch.optim, "Muon", torch.optim.Adagrad)

    def __init__(self, params, lr=0.01):
        super().__init__(list(params), {"lr": lr})
        weights = self.param_groups[0]["params"]
        self.muon = self.of_matrices([w for w in weights if w.ndim == 2], lr=lr)
        others = [w for w in weights if w.ndim != 2]
        self.adamw = torch.optim.AdamW(others, lr=lr)

    @torch.no_grad()
    def step(self, closure=None):
        for own in (self.muon, self.adamw):
            for group in own.param_groups:
                group["lr"] = self.param_groups[0]["lr"]
            own.step()

    def state_dict(self):
        return {"muon": self.muon.state_dict(), "adamw": self.adamw.state_dict()}

    def load_state_dict(self, state):
        self.muon.load_state_dict(state["muon"])
        self.adamw.load_state_dict(state["adamw"])


class Forgetful(MuonAdamW):
    """Its state dict is that of the outer optimiser, which has none."""

    state_dict, load_state_dict = (
        torch.optim.Optimizer.state_dict, torch.optim.Optimizer.load_state_dict
    )  # fmt: skip


HERE = __name__
OPTIMIZERS = {
    "sgd": ({"momentum": 0.9, "weight-decay": 0.1}, functools.partial(
        torch.optim.SGD, momentum=0.9, weight_decay=0.1)),
    "adamw": ({"optimizer": "adamw"}, torch.optim.AdamW),
    "composite": ({"optimizer": f"{HERE}:MuonAdamW"}, MuonAdamW),
}  # fmt: skip
DRAWN = torch.Generator().manual_seed(0)
ROWS = Examples(torch.randn(23, 6, generator=DRAWN), torch.randint(0, 3, (23,), generator=DRAWN))
IMAGES = Examples(
    torch.randn(23, 1, 8, 8, generator=DRAWN), torch.randint(0, 4, (23,), generator=DRAWN)
)
RATE, SIZE, STEPS = 0.05, 4, 9


def task_of(network, **attributes):
    return Task("own", network, networks.images, torch.clone, learning_rate=RATE, **attributes)


def arrays_of(model):
    return [array.detach().numpy().copy() for array in model.state_dict().values()]


def plain(model, make, examples, partition, rounds):
    """Take the steps of some rounds with one optimiser, as any tutorial of torch does."""
    optimizer = make(model.parameters(), lr=RATE)
    for server_round in rounds:
        order = torch_generator(1, "batches", partition, server_round)
        batches = list(examples.shuffled(order).batches(SIZE))
        model.train()
        with seeded(derive_seed(1, "local", partition, server_round), CPU):
            for step in range(STEPS):
                inputs, targets = batches[step % len(batches)]
                optimizer.zero_grad()
                functional.cross_entropy(model(inputs), targets).backward()
                optimizer.step()
    return arrays_of(model)


def config(server_round, **keys):
    return {
        "learning-rate": RATE, "batch-size": SIZE, "local-steps": STEPS, "seed": 1,
        "server-round": server_round, **keys,
    }  # fmt: skip


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize(
    ("network", "examples"),
    [
        *((kind, ROWS) for kind in (
            Reentrant, Experts, StochasticDepth, Unused, Handle, Hooked, SharedMemory)),
        (View, IMAGES),
        (lambda: networks.convolutions(nn.BatchNorm2d), IMAGES),
        (networks.masked, IMAGES),
        (networks.Replaced, IMAGES),
    ],
)  # fmt: skip
def test_two_clients_train_as_by_a_plain_loop_of_torch(network, examples, optimizer):
    """The second as if the first had never trained in its process; two rounds with kept state."""
    keys, make = OPTIMIZERS[optimizer]
    if keys.get("optimizer"):
        keys = {**keys, "optimizer-state": "kept"}
    task = task_of(network)
    start, networks_of = task.initial_model(7), task.networks(7, CPU)
    for partition in (0, 1):
        arrays, memory = arrays_of(start), {}
        client = TaskClient(task, networks_of, examples, partition=partition)
        for server_round in (1, 2):
            arrays = fit(client, arrays, config(server_round, **keys), memory)[0]
        expected = plain(task.initial_model(7), make, examples, partition, (1, 2))
        for ours, theirs in zip(arrays, expected, strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_sparse_gradients_are_those_of_torch():
    task = networks.SPARSE_WORD
    data = task.dataset(None).train
    examples = Examples(*(torch.from_numpy(part) for part in (data.inputs, data.targets)))
    for optimizer, make in (("sgd", torch.optim.SGD), ("sparseadam", torch.optim.SparseAdam)):
        if optimizer == "sparseadam":  # it takes no dense gradients
            task = dataclasses.replace(task, model=lambda: nn.Sequential(
                nn.EmbeddingBag(networks.WORDS, 4, sparse=True)))  # fmt: skip
        start = arrays_of(task.initial_model(1))
        keys = {} if optimizer == "sgd" else {"optimizer": optimizer}
        client = TaskClient(task, task.networks(1, CPU), examples)
        arrays = fit(client, start, config(1, **keys))[0]
        expected = plain(task.initial_model(1), make, examples, 0, (1,))
        for ours, theirs in zip(arrays, expected, strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_a_new_network_for_each_message_keeps_nothing_of_the_one_before():
    start = arrays_of(Counting())
    own, shared = (task_of(Counting, shared_model=said) for said in (False, True))
    first, again, one, other = (
        fit(TaskClient(task, network, ROWS), start, config(1))[0]
        for task, network in 2 * [(own, own.networks(1, CPU))] + 2 * [(
            shared, shared.networks(1, CPU))]
    )  # fmt: skip
    for a, b, c in zip(first, again, one, strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(a, c)
    assert not all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def test_optimiser_whose_state_dict_lacks_its_state_cannot_be_kept():
    model = nn.Linear(4, 4)
    for name in ("MuonAdamW", "Forgetful"):
        check_optimizer(f"{HERE}:{name}", {}, model)
    check_optimizer(f"{HERE}:MuonAdamW", {}, model, kept=True)
    with pytest.raises(ValueError, match="its state_dict\\(\\) lacks a part of what it keeps"):
        check_optimizer(f"{HERE}:Forgetful", {}, model, kept=True)


def test_state_that_is_not_finite_is_not_kept():
    task = task_of(Unused)
    examples = dataclasses.replace(ROWS, inputs=ROWS.inputs * torch.inf)
    for keys in ({"momentum": 0.9}, {"optimizer": "adamw", "optimizer-state": "kept"}):
        memory = {}
        fit(TaskClient(task, task.model, examples), arrays_of(Unused()), config(1, **keys), memory)
        assert memory == {}


@pytest.mark.parametrize("in_parts", [False, True])
def test_gradient_that_an_interrupted_client_left_does_not_count(in_parts):
    """A deadline ends a client anywhere, also between the backward pass and the step."""
    task = task_of(lambda: nn.Linear(6, 3), shared_model=True, in_parts=in_parts)
    found = []
    for left in (False, True):
        network = task.networks(7, CPU)
        start = arrays_of(network())
        if left:
            network()(ROWS.inputs).sum().backward()
        client = TaskClient(task, network, ROWS)
        found.append(fit(client, start, config(1))[0] + gradient(client, start, config(1))[0])
    for ours, expected in zip(*found, strict=True):
        np.testing.assert_array_equal(ours, expected)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_large_batch_in_parts_has_the_gradient_of_the_whole(momentum, monkeypatch):
    draw = torch.Generator().manual_seed(0)
    inputs = torch.randn(23, 1, 28, 28, generator=draw, dtype=torch.float64)
    examples = Examples(inputs, torch.randint(0, 10, (23,), generator=draw))
    seen, found = [], []
    for limit in (1000, 5):
        monkeypatch.setattr(batch_size, "MAX_BATCH", limit)
        task = dataclasses.replace(MNIST_CNN, model=lambda: MNIST_CNN.model().double())
        model = task.initial_model(3)
        model.register_forward_hook(lambda _, args, __: seen.append(len(args[0])))
        keys = {"batch-size": 0, "momentum": momentum}
        client = TaskClient(task, lambda model=model: model, examples)
        found.append(fit(client, arrays_of(model), config(1, **keys))[0])
    assert seen[-5:] == [5, 5, 5, 5, 3]
    for whole, parts in zip(*found, strict=True):
        # A part's share of the predictions is a float32.
        np.testing.assert_allclose(whole, parts, rtol=1e-5, atol=1e-6 * np.abs(whole).max())
