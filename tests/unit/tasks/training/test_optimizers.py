"""A client's training with torch's optimisers, against a plain loop of torch's."""

import dataclasses

import numpy as np
import pytest
import torch
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR

from tasks.arguments import inline
from tasks.mnist import MNIST_2NN
from tasks.model_arrays import load_arrays
from tasks.training.examples import Examples
from tasks.training.local_training import TaskClient
from tasks.training.optimizers import check_optimizer, default_rate, find_optimizer
from tasks.training.random_streams import torch_generator
from tests.support.task_clients import fit

TASK = dataclasses.replace(MNIST_2NN, model=lambda: MNIST_2NN.model().double())
DRAWS = torch.Generator().manual_seed(0)
INPUTS = torch.randn(40, 1, 28, 28, generator=DRAWS, dtype=torch.float64)
EXAMPLES = Examples(INPUTS, torch.randint(0, 10, (40,), generator=DRAWS))
STEPS, SIZE, RATE = 7, 10, 0.01
CASES = {
    "adamw": ("AdamW", {"weight_decay": 0.1, "betas": [0.8, 0.99]}),
    "rmsprop": ("RMSprop", {"momentum": 0.5}),
    "torch.optim:SGD": ("SGD", {"momentum": 0.9, "nesterov": True}),
}


def start():
    return [array.numpy().copy() for array in TASK.initial_model(3).state_dict().values()]


def batches(server_round):
    order = torch_generator(1, "batches", 0, server_round)
    whole = list(EXAMPLES.shuffled(order).batches(SIZE))
    return [whole[step % len(whole)] for step in range(STEPS)]


def plain(model, optimizer, server_round, schedule=None, clip=0.0):
    """Take the steps of a round as any tutorial of torch does."""
    scheduler = schedule(optimizer) if schedule else None
    for inputs, targets in batches(server_round):
        optimizer.zero_grad()
        TASK.loss(model(inputs), targets).backward()
        if clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        if scheduler:
            scheduler.step()


def config(server_round, name, arguments, **more):
    return {
        "learning-rate": RATE, "batch-size": SIZE, "local-steps": STEPS, "seed": 1,
        "server-round": server_round, "optimizer": name, "optimizer-args": inline(arguments),
        **more,
    }  # fmt: skip


def model_of(arrays):
    model = TASK.model()
    load_arrays(model, dict(zip(model.state_dict(), arrays, strict=True)))
    return model


def assert_same(arrays, model):
    for ours, theirs in zip(arrays, model.state_dict().values(), strict=True):
        np.testing.assert_allclose(ours, theirs.numpy(), atol=1e-12)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("state", ["new", "kept"])
def test_two_rounds_equal_a_plain_loop_of_torch(name, state):
    """A kept state makes the two rounds those of one optimiser."""
    (kind, arguments), keep = CASES[name], state == "kept"
    arrays, memory = start(), {}
    for server_round in (1, 2):
        told = config(server_round, name, arguments, **{"optimizer-state": state})
        client = TaskClient(TASK, TASK.model, EXAMPLES)
        given = memory if keep else None
        arrays = fit(client, arrays, told, given)[0]

    model = model_of(start())
    optimizers = [getattr(torch.optim, kind)(model.parameters(), lr=RATE, **arguments)]
    optimizers.append(
        optimizers[0] if keep else getattr(torch.optim, kind)(model.parameters(), RATE, **arguments)
    )
    for server_round, optimizer in enumerate(optimizers, 1):
        plain(model, optimizer, server_round)
    assert_same(arrays, model)
    assert bool(memory) == (keep and bool(optimizers[0].state))


@pytest.mark.parametrize(
    ("name", "schedule"),
    [
        ("cosine", lambda stepped: CosineAnnealingLR(stepped, STEPS)),
        ("linear", lambda stepped: LinearLR(stepped, 1.0, 1e-12, STEPS)),
    ],
)
@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_schedule_and_clipping_equal_torchs(name, schedule, optimizer):
    more = {"rate-schedule": name, "gradient-clip": 0.5}
    told = config(1, optimizer, {}, **more)
    arrays = fit(TaskClient(TASK, TASK.model, EXAMPLES), start(), told)[0]
    model = model_of(start())
    kind = torch.optim.SGD if optimizer == "sgd" else torch.optim.AdamW
    plain(model, kind(model.parameters(), lr=RATE), 1, schedule, clip=0.5)
    assert_same(arrays, model)


def test_optimiser_is_found_by_name_or_path():
    assert find_optimizer("AdamW") is find_optimizer("torch.optim:AdamW") is torch.optim.AdamW
    assert default_rate("adamw") == 1e-3
    assert default_rate("rmsprop") == 1e-2


@pytest.mark.parametrize(
    ("name", "arguments", "error"),
    [
        ("adamx", {}, "known optimisers: "),
        ("lbfgs", {}, "it evaluates the loss several times a step"),
        ("torch:nn", {}, "it is no class of torch.optim.Optimizer"),
        ("adam", {"beta": 1}, "unexpected keyword argument 'beta'"),
        ("adam", {"betas": [2, 0.9]}, "Invalid beta parameter"),
    ],
)
def test_optimiser_that_cannot_be_made_is_refused(name, arguments, error):
    with pytest.raises((TypeError, ValueError), match=error):
        check_optimizer(name, arguments, torch.nn.Linear(2, 2))


# Adam divides by the size of the gradient: where it is near 0, its sign is that of rounding.
@pytest.mark.parametrize(("optimizer", "share"), [("sgd", 0.1), ("adamw", 0.5)])
def test_mixed_precision_is_near_float32_and_leaves_the_weights_their_dtype(optimizer, share):
    examples = Examples(INPUTS.float(), EXAMPLES.targets)
    weights = [array.astype(np.float32) for array in start()]
    found = {}
    for precision in ("float32", "bf16"):
        told = config(1, optimizer, {}, precision=precision)
        client = TaskClient(MNIST_2NN, MNIST_2NN.model, examples)
        found[precision] = fit(client, weights, told)
    arrays, losses = ([result[part] for result in found.values()] for part in (0, 2))
    assert {array.dtype for array in arrays[1]} == {np.dtype(np.float32)}
    assert losses[1]["train-loss"] == pytest.approx(losses[0]["train-loss"], rel=0.02)
    assert losses[1] != losses[0]
    moved = [np.linalg.norm(ours - two) for ours, two in zip(arrays[0], weights, strict=True)]
    apart = [np.linalg.norm(ours - two) for ours, two in zip(*arrays, strict=True)]
    assert 0 < sum(apart) < share * sum(moved)
