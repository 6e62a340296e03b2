import dataclasses

import numpy as np
import pytest
import torch
from flwr import common
from torch import nn

from tasks.mnist import MNIST_2NN, MNIST_LOGISTIC
from tasks.model_arrays import load_arrays
from tasks.numpy_client import NumPyTaskClient
from tasks.training import batch_size
from tasks.training.examples import Examples
from tasks.training.local_training import TaskClient
from tasks.training.random_streams import torch_generator
from tests.support.task_clients import fit, gradient, softmax_gradient


def double(task):
    """Return the task in float64: against a formula, rounding is then far below an error."""
    return dataclasses.replace(task, model=lambda: task.model().double())


RNG = np.random.default_rng(0)
INPUTS = RNG.normal(size=(23, 1, 28, 28))
TARGETS = RNG.integers(0, 10, 23)
EXAMPLES = Examples(torch.from_numpy(INPUTS), torch.from_numpy(TARGETS))
WEIGHTS = [RNG.normal(size=shape) * 0.01 for shape in ((10, 784), (10,))]
CONFIG = {"learning-rate": 0.1, "local-epochs": 1, "batch-size": 10, "seed": 1, "server-round": 1}


LOGISTIC = double(MNIST_LOGISTIC)


def client(task=LOGISTIC, partition=0, examples=EXAMPLES):
    network = task.networks(1, torch.device("cpu"))
    return TaskClient(task, network, examples, examples, partition=partition)


def trained_on(task, **changes):
    """Return the weights after training."""
    config = {**CONFIG, **{key.replace("_", "-"): value for key, value in changes.items()}}
    partition = config.pop("partition", 0)
    examples = dataclasses.replace(EXAMPLES, prepare=task.augment)
    return fit(client(task, partition, examples), WEIGHTS, config)[0]


def same(a, b):
    return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


def test_one_full_batch_step_returns_the_number_of_examples_and_the_loss():
    _, count, metrics = fit(client(), WEIGHTS, {**CONFIG, "batch-size": 0})
    assert count == 23
    logits = INPUTS.reshape(23, -1) @ WEIGHTS[0].T + WEIGHTS[1]
    loss = np.mean(np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(23), TARGETS])
    assert metrics["train-loss"] == pytest.approx(loss, rel=1e-5)


@pytest.mark.parametrize(
    ("mu", "decay", "offset"), [(0, 0, 0), (3.0, 0, 0), (0, 0.3, 0), (0, 0, RNG.normal(size=10))]
)
def test_full_batch_steps_by_hand(mu, decay, offset):
    """The gradient g(w) + mu (w - w0) + lambda w + offset, that of the bias alone."""
    config = {**CONFIG, "batch-size": 0, "local-epochs": 0, "local-steps": 2}
    config |= {"proximal-mu": mu, "weight-decay": decay}
    trained = fit(client(), WEIGHTS, config, offset={"1.bias": offset} if np.any(offset) else None)
    weights = WEIGHTS
    for _ in range(2):
        gradients = softmax_gradient(weights, INPUTS, TARGETS)
        gradients[1] = gradients[1] + offset
        weights = [
            w - 0.1 * (g + mu * (w - w0) + decay * w)
            for w, g, w0 in zip(weights, gradients, WEIGHTS, strict=True)
        ]
    for ours, expected in zip(trained[0], weights, strict=True):
        np.testing.assert_allclose(ours, expected, atol=1e-12)


def test_local_sgd_equals_client_update_of_algorithm_1():
    """Examples are split into batches once; E epochs run over them, the last batch is smaller."""
    order = torch.randperm(23, generator=torch_generator(3, "batches", 4, 9)).numpy()
    weights = [array.astype(np.float64) for array in WEIGHTS]
    for _ in range(3):
        for chosen in (order[:10], order[10:20], order[20:]):
            gradient = softmax_gradient(weights, INPUTS[chosen], TARGETS[chosen])
            weights = [w - 0.1 * g for w, g in zip(weights, gradient, strict=True)]
    config = {**CONFIG, "local-epochs": 3, "server-round": 9, "seed": 3}
    trained = fit(client(partition=4), WEIGHTS, config)[0]
    for ours, expected in zip(trained, weights, strict=True):
        np.testing.assert_allclose(ours, expected, atol=1e-12)


def test_trained_arrays_are_not_overwritten_by_next_client():
    task, model = LOGISTIC, LOGISTIC.model()
    first = fit(TaskClient(task, lambda: model, EXAMPLES, partition=0), WEIGHTS, CONFIG)[0]
    kept = [array.copy() for array in first]
    fit(TaskClient(task, lambda: model, EXAMPLES, partition=1), WEIGHTS, CONFIG)
    assert same(first, kept)


@pytest.mark.parametrize("chunk", [1, 7, 1000])
def test_full_gradient_equals_that_of_mean_loss_for_any_chunk_size(chunk, monkeypatch):
    monkeypatch.setattr(batch_size, "MAX_BATCH", chunk)
    found, count, metrics = gradient(client(), WEIGHTS, {})
    decayed, _, _ = gradient(client(), WEIGHTS, {"weight-decay": 0.5})
    expected = softmax_gradient(WEIGHTS, INPUTS, TARGETS)
    for ours, with_decay, g, w in zip(found, decayed, expected, WEIGHTS, strict=True):
        np.testing.assert_allclose(with_decay, ours + 0.5 * w, atol=1e-12)
        # A part's share of the examples is a float32.
        np.testing.assert_allclose(ours, g, atol=2 * 2**-24 * np.abs(g).max())
    assert count == 23
    tested = NumPyTaskClient(client(), WEIGHTS).evaluate(WEIGHTS, {})
    assert metrics["train-loss"] == pytest.approx(tested[0], rel=1e-5)


def test_client_serves_as_a_numpy_client_of_flower():
    """By Flower's messages for such clients, with the numbers of a task client."""
    served = NumPyTaskClient(client(), WEIGHTS).to_client()
    asked = common.GetParametersIns({})
    sent = served.get_parameters(asked).parameters
    fitted = served.fit(common.FitIns(sent, CONFIG))
    trained = common.parameters_to_ndarrays(fitted.parameters)
    assert same(trained, fit(client(), WEIGHTS, CONFIG)[0])
    assert fitted.num_examples == 23
    tested = served.evaluate(common.EvaluateIns(fitted.parameters, CONFIG))
    logits = INPUTS.reshape(23, -1) @ trained[0].T + trained[1]
    assert tested.metrics["accuracy"] == np.mean(logits.argmax(axis=1) == TARGETS)
    with pytest.raises(ValueError, match="2 arrays of the model travel, got 1"):
        served.fit(common.FitIns(common.ndarrays_to_parameters(WEIGHTS[:1]), CONFIG))
    with pytest.raises(ValueError, match="optimizer-state = 'kept': a NumPyTaskClient keeps"):
        served.fit(common.FitIns(sent, CONFIG | {"optimizer-state": "kept"}))


def with_batch_normalisation():
    torch.manual_seed(2)
    return nn.Sequential(nn.Flatten(), nn.BatchNorm1d(784), nn.Linear(784, 10))


def test_last_batch_of_one_example_takes_another_before_batch_normalisation():
    order = torch.randperm(23, generator=torch_generator(1, "batches", 0, 1))
    expected = with_batch_normalisation().double()
    sgd = torch.optim.SGD(expected.parameters(), lr=0.1)
    for chosen in (order[:11], order[11:21], order[21:]) * 2:
        sgd.zero_grad()
        nn.functional.cross_entropy(
            expected(EXAMPLES.inputs[chosen]), EXAMPLES.targets[chosen]
        ).backward()
        sgd.step()
    task = double(dataclasses.replace(MNIST_LOGISTIC, model=with_batch_normalisation))
    weights = [array.numpy() for array in task.model().state_dict().values()]
    trained = fit(client(task), weights, {**CONFIG, "batch-size": 11, "local-epochs": 2})[0]
    for ours, wanted in zip(trained, expected.state_dict().values(), strict=True):
        np.testing.assert_allclose(ours, wanted, atol=1e-12)


@pytest.mark.parametrize("examples", [None, Examples(torch.zeros(0, 1), torch.zeros(0))])
def test_client_without_examples_raises_error_that_names_the_split(examples):
    empty = client(examples=examples)
    for work in (fit, gradient):
        with pytest.raises(ValueError, match="no train examples"):
            work(empty, WEIGHTS, CONFIG)
    with pytest.raises(ValueError, match="no test examples"):
        empty.test({}, 1)


@pytest.mark.parametrize("task", [LOGISTIC, double(MNIST_2NN)])
def test_two_fits_with_carried_momentum_equal_one_run_of_torch_sgd(task):
    """Their steps replace the epochs, and cycle from the last batch to the first."""
    start = [array.numpy().copy() for array in task.initial_model(3).state_dict().values()]
    weights, momentum = start, {}
    for server_round in (1, 2):
        config = {**CONFIG, "momentum": 0.9, "local-epochs": 5, "local-steps": 4}
        config["server-round"] = server_round
        weights = fit(client(task), weights, config, momentum)[0]

    model = task.model()
    load_arrays(model, dict(zip(model.state_dict(), start, strict=True)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=True)
    for server_round in (1, 2):
        generator = torch_generator(1, "batches", 0, server_round)
        batches = list(EXAMPLES.shuffled(generator).batches(10))
        for inputs, targets in [*batches, batches[0]]:
            optimizer.zero_grad()
            task.loss(model(inputs), targets).backward()
            optimizer.step()
    for ours, theirs in zip(weights, model.state_dict().values(), strict=True):
        np.testing.assert_allclose(ours, theirs.numpy(), atol=1e-12)


def test_gradient_with_momentum_returns_the_momentum_buffer():
    momentum, expected = {}, [0.0, 0.0]
    for weights in (WEIGHTS, [array * 2 for array in WEIGHTS]):
        found, _, _ = gradient(client(), weights, {"momentum": 0.6}, momentum)
        g = softmax_gradient(weights, INPUTS, TARGETS)
        expected = [0.6 * v + gradient for v, gradient in zip(expected, g, strict=True)]
        assert same(found, momentum.values())
        for ours, theirs in zip(found, expected, strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-12)


def noisy(images):
    return images + torch.rand(len(images), 1, 1, 1)


NOISY = dataclasses.replace(LOGISTIC, augment=noisy)


def test_augmentation_depends_only_on_seed_client_and_round():
    first = trained_on(NOISY)
    torch.manual_seed(99)
    assert same(first, trained_on(NOISY))
    for change in ({"seed": 2}, {"server_round": 2}, {"partition": 1}):
        assert not same(first, trained_on(NOISY, **change))


@pytest.mark.parametrize("work", [fit, gradient])
def test_training_leaves_torch_random_state_unchanged(work):
    noisy_client = client(NOISY, examples=dataclasses.replace(EXAMPLES, prepare=noisy))
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    work(noisy_client, WEIGHTS, CONFIG)
    assert torch.equal(torch.rand(3), expected)
