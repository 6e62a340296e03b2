"""Clients trained in one vectorised pass, against each client trained alone."""

import dataclasses

import numpy as np
import pytest
import torch

import tasks
from tasks.local_sgd import joint_trainer
from tasks.local_training import TaskClient
from tasks.mnist import MNIST_LOGISTIC
from tasks.random_streams import torch_generator
from tasks.vectorised import group_alike, train_together
from tests.support.made_up_examples import clients_of

# Rounding may move a weight by this share of what training changed most. In float32 it may also
# decide which of two almost equal pixels is the largest of a pool, or whether a ReLU lets one
# through; in float64 that is as good as impossible, so there the same steps give the same result.
TOLERANCE = {np.dtype(np.float32): 1e-3, np.dtype(np.float64): 1e-10}
# With batches of 3: 3, 1, 2 and 1 batches a client, the last of 1, 2, 2 and 3 examples.
SIZES = (7, 2, 5, 3)
CONFIG = {"learning-rate": 0.05, "batch-size": 3, "seed": 3, "server-round": 2}
EPOCHS = {**CONFIG, "local-epochs": 2}
STEPS = {**CONFIG, "local-epochs": 0, "local-steps": 4}
FULL_BATCH = {**CONFIG, "local-epochs": 2, "batch-size": 0}
SUPPORTED = [
    "cifar10-cnn", "cifar10-vgg11", "fashion-cnn", "mnist-2nn", "mnist-cnn", "mnist-logistic",
]  # fmt: skip
QUICK = ("mnist-2nn", "mnist-logistic")
supported_tasks = pytest.mark.parametrize(
    "name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in SUPPORTED]
)


def in_float64(task):
    augment = task.augment
    return dataclasses.replace(
        task,
        model=lambda: task.model().double(),
        prepare=lambda stored: task.prepare(stored).double(),
        augment=None if augment is None else lambda stored: augment(stored).double(),
    )


def make_clients(task, sizes=SIZES):
    model = task.initial_model(1)
    start = [array.numpy().copy() for array in model.state_dict().values()]
    clients = [
        TaskClient(task, model, examples, partition=number)
        for number, examples in enumerate(clients_of(task, sizes))
    ]
    return clients, start


def some_momentum(model, seed):
    rng = np.random.default_rng(seed)
    return {
        name: torch.from_numpy(0.01 * rng.normal(size=tuple(weight.shape))).to(weight.dtype).numpy()
        for name, weight in model.named_parameters()
    }


def largest(arrays, others):
    return max(float(np.abs(a - b).max()) for a, b in zip(arrays, others, strict=True))


def assert_equal_up_to_rounding(found, expected, start):
    tolerance = TOLERANCE[start[0].dtype]
    assert largest(found, expected) <= tolerance * largest(expected, start)


@supported_tasks
@pytest.mark.parametrize(
    "config",
    [
        EPOCHS,
        {**EPOCHS, "momentum": 0.9, "proximal-mu": 0.5},
        {**EPOCHS, "weight-decay": 0.1},
        {**EPOCHS, "momentum": 0.9, "weight-decay": 0.1, "proximal-mu": 0.5},
        {**STEPS, "momentum": 0.5},
        {**STEPS, "proximal-mu": 1.0},
        FULL_BATCH,
    ],
    ids=[
        "epochs",
        "epochs, momentum, mu",
        "epochs, decay",
        "epochs, momentum, mu, decay",
        "steps, momentum",
        "steps, mu",
        "full batch",
    ],
)
def test_clients_trained_together_equal_each_trained_alone(name, config):
    task = in_float64(tasks.load(name))
    config = {**config, "learning-rate": task.learning_rate / 5}
    clients, start = make_clients(task)
    # The second client has momentum from an earlier round, the others have none.
    alone_v = [{}, some_momentum(clients[1].model, 1), {}, {}]
    works = [
        client.prepare_sgd(start, config, v) for client, v in zip(clients, alone_v, strict=True)
    ]
    together = train_together(works)
    for client, v, found in zip(clients, alone_v, together, strict=True):
        expected, _, metrics = client.fit(start, config, v)
        assert_equal_up_to_rounding(found.state.values(), expected, start)
        assert found.loss == pytest.approx(metrics["train-loss"], rel=1e-4)
        if "momentum" in config:
            assert found.momentum.keys() == v.keys()
            scale = max(float(np.abs(buffer).max()) for buffer in v.values())
            assert largest(found.momentum.values(), v.values()) <= 1e-10 * scale
        else:
            assert found.momentum == {}


@supported_tasks
def test_in_float32_they_are_equal_up_to_its_rounding(name):
    task = tasks.load(name)
    clients, start = make_clients(task)
    config = {**EPOCHS, "learning-rate": task.learning_rate / 5}
    together = train_together([client.prepare_sgd(start, config) for client in clients])
    for client, found in zip(clients, together, strict=True):
        assert_equal_up_to_rounding(found.state.values(), client.fit(start, config)[0], start)


def softmax_gradient(weights, x, targets):
    logits = x @ weights[0].T + weights[1]
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    p[np.arange(len(x)), targets] -= 1
    return [p.T @ x / len(x), p.mean(axis=0)]


def test_logistic_regression_equals_a_loop_written_out_in_float64():
    config = {**EPOCHS, "momentum": 0.9, "proximal-mu": 0.5}
    clients, start = make_clients(MNIST_LOGISTIC)
    together = train_together([client.prepare_sgd(start, config) for client in clients])
    for number, (client, found) in enumerate(zip(clients, together, strict=True)):
        inputs, targets = client._train.slice(0, len(client._train))
        x, y = inputs.flatten(1).double().numpy(), targets.numpy()
        order = torch.randperm(len(y), generator=torch_generator(3, "batches", number, 2)).numpy()
        batches = [order[i : i + 3] for i in range(0, len(y), 3)] * 2
        sent = [array.astype(np.float64) for array in start]
        weights, velocity = sent, [0.0, 0.0]
        for rows in batches:
            gradient = softmax_gradient(weights, x[rows], y[rows])
            away = [0.5 * (w - w0) for w, w0 in zip(weights, sent, strict=True)]
            velocity = [0.9 * v + g + a for v, g, a in zip(velocity, gradient, away, strict=True)]
            weights = [w - 0.05 * v for w, v in zip(weights, velocity, strict=True)]
        assert_equal_up_to_rounding(found.state.values(), weights, start)


@pytest.mark.parametrize("name", ["cifar10-cnn", "cifar10-vgg11", "mnist-logistic"])
def test_prepared_batches_are_those_of_a_client_alone_to_the_last_bit(name, monkeypatch):
    task = tasks.load(name)
    clients, start = make_clients(task)
    seen = []
    monkeypatch.setattr(
        TaskClient, "run_sgd", lambda self, batches, *_: seen.append(list(batches)) or 0.0
    )
    for client in clients:
        torch.manual_seed(7)
        expected_draw = torch.rand(1)
        client.fit(start, EPOCHS)
        torch.manual_seed(7)
        prepared = client.prepare_sgd(start, EPOCHS).batches
        assert torch.equal(torch.rand(1), expected_draw)  # the random state is restored
        assert prepared.steps == len(seen[-1])
        rows = zip(prepared.first.tolist(), prepared.size.tolist(), strict=True)
        for (inputs, targets), (first, size) in zip(seen[-1], rows, strict=True):
            assert torch.equal(prepared.inputs[first : first + size], inputs)
            assert torch.equal(prepared.targets[first : first + size], targets)


def test_result_of_a_client_does_not_depend_on_the_order_of_the_clients():
    clients, start = make_clients(MNIST_LOGISTIC)
    for order in ([0, 1, 2, 3], [3, 1, 0, 2], [1, 2]):
        works = [clients[number].prepare_sgd(start, EPOCHS) for number in order]
        for number, found in zip(order, train_together(works), strict=True):
            expected = clients[number].fit(start, EPOCHS)[0]
            assert_equal_up_to_rounding(found.state.values(), expected, start)


def test_clients_with_other_models_and_settings_are_not_trained_together():
    clients, start = make_clients(MNIST_LOGISTIC)
    other, _ = make_clients(MNIST_LOGISTIC)
    works = [
        clients[0].prepare_sgd(start, EPOCHS),
        clients[1].prepare_sgd(start, {**EPOCHS, "learning-rate": 0.2}),
        clients[2].prepare_sgd(start, STEPS),
        other[3].prepare_sgd(start, EPOCHS),
    ]
    assert group_alike(works) == [[0, 2], [1], [3]]


def test_what_is_raised_before_a_step_ends_the_pass():
    class Late(Exception):
        pass

    def before_step():
        steps.append(1)
        if len(steps) == 2:
            raise Late

    steps = []
    clients, start = make_clients(MNIST_LOGISTIC)
    with pytest.raises(Late):
        train_together([clients[0].prepare_sgd(start, EPOCHS)], before_step)
    assert len(steps) == 2


def test_buffers_and_frozen_weights_come_back_as_they_were_sent():
    def model():
        network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 10))
        network[1].bias.requires_grad_(False)
        network.register_buffer("count", torch.tensor([3]))
        return network

    clients, start = make_clients(dataclasses.replace(MNIST_LOGISTIC, model=model))
    config = {**EPOCHS, "momentum": 0.9}
    (found,) = train_together([clients[0].prepare_sgd(start, config)])
    expected = clients[0].fit(start, config)[0]
    names = list(clients[0].model.state_dict())
    assert list(found.state) == names
    for name, ours, alone, sent in zip(names, found.state.values(), expected, start, strict=True):
        assert ours.dtype == alone.dtype
        assert np.array_equal(ours, sent) == (name != "1.weight")
    assert list(found.momentum) == ["1.weight"]


@pytest.fixture
def joint_training():
    """Let `fit` hand its steps over to be trained, as the only client of a pass."""
    token = joint_trainer.set(lambda work: train_together([work])[0])
    yield
    joint_trainer.reset(token)


def test_fit_that_hands_its_steps_over_returns_what_it_returns_alone(joint_training):
    clients, start = make_clients(MNIST_LOGISTIC)
    config = {**EPOCHS, "momentum": 0.9}
    momentum, expected_momentum = {}, {}
    arrays, count, metrics = clients[0].fit(start, config, momentum)
    token = joint_trainer.set(None)
    expected = clients[0].fit(start, config, expected_momentum)
    joint_trainer.reset(token)
    assert_equal_up_to_rounding(arrays, expected[0], start)
    assert count == expected[1]
    assert metrics == {"train-loss": pytest.approx(expected[2]["train-loss"], rel=1e-4)}
    assert momentum.keys() == expected_momentum.keys()


def test_momentum_is_unchanged_where_joint_training_raises():
    def fail(work):
        raise RuntimeError("out of memory")

    clients, start = make_clients(MNIST_LOGISTIC)
    momentum = some_momentum(clients[0].model, 1)
    kept = {name: buffer.copy() for name, buffer in momentum.items()}
    token = joint_trainer.set(fail)
    with pytest.raises(RuntimeError, match="out of memory"):
        clients[0].fit(start, {**EPOCHS, "momentum": 0.9}, momentum)
    joint_trainer.reset(token)
    assert all(np.array_equal(kept[name], momentum[name]) for name in kept)
