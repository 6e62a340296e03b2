import dataclasses

import numpy as np
import pytest
import torch
from torch import nn

from tasks import base
from tasks.base import Examples, TaskClient, evaluate, load_arrays
from tasks.mnist import MNIST_2NN, MNIST_LOGISTIC

RNG = np.random.default_rng(0)
INPUTS = RNG.normal(size=(23, 1, 28, 28)).astype(np.float32)
TARGETS = RNG.integers(0, 10, 23)
EXAMPLES = Examples(torch.from_numpy(INPUTS), torch.from_numpy(TARGETS))
WEIGHTS = [RNG.normal(size=shape).astype(np.float32) * 0.01 for shape in ((10, 784), (10,))]
CONFIG = {"learning-rate": 0.1, "local-epochs": 1, "batch-size": 10, "seed": 1, "server-round": 1}


def client(task=MNIST_LOGISTIC, partition=0, examples=EXAMPLES):
    return TaskClient(task, task.model(), examples, examples, partition=partition)


def fit(**changes):
    config = {**CONFIG, **{key.replace("_", "-"): value for key, value in changes.items()}}
    return client().fit(WEIGHTS, config)[0]


def softmax_gradient(weights, inputs, targets):
    """The gradient of mean cross-entropy of logistic regression, in float64, by its formula."""
    x = inputs.reshape(len(inputs), -1).astype(np.float64)
    logits = x @ weights[0].T + weights[1]
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    p[np.arange(len(x)), targets] -= 1
    return [p.T @ x / len(x), p.mean(axis=0)]


def same(a, b):
    return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


def test_one_full_batch_step_is_gradient_descent():
    trained, count, metrics = client().fit(WEIGHTS, {**CONFIG, "batch-size": 0})
    gradient = softmax_gradient(WEIGHTS, INPUTS, TARGETS)
    for new, old, g in zip(trained, WEIGHTS, gradient, strict=True):
        np.testing.assert_allclose(new, old - 0.1 * g, atol=1e-6)
    assert count == 23
    logits = INPUTS.reshape(23, -1) @ WEIGHTS[0].T + WEIGHTS[1]
    loss = np.mean(np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(23), TARGETS])
    assert metrics["train-loss"] == pytest.approx(loss, rel=1e-5)


def test_local_sgd_is_client_update_of_algorithm_1():
    """Batches are split once per call; E epochs run over the same batches, the last one smaller."""
    order = torch.randperm(23, generator=base.torch_stream(1, "batches", 4, 9)).numpy()
    weights = [array.astype(np.float64) for array in WEIGHTS]
    for _ in range(3):
        for chosen in (order[:10], order[10:20], order[20:]):
            gradient = softmax_gradient(weights, INPUTS[chosen], TARGETS[chosen])
            weights = [w - 0.1 * g for w, g in zip(weights, gradient, strict=True)]
    config = {**CONFIG, "local-epochs": 3, "server-round": 9}
    trained = client(partition=4).fit(WEIGHTS, config)[0]
    for ours, expected in zip(trained, weights, strict=True):
        np.testing.assert_allclose(ours, expected, atol=2e-6)


def test_steps_count_instead_of_epochs_and_begin_again():
    assert same(fit(local_epochs=2), fit(local_epochs=5, local_steps=6))
    assert same(fit(local_epochs=1), fit(local_epochs=0, local_steps=3))
    assert not same(fit(local_steps=1), fit(local_steps=2))


def test_batches_depend_on_seed_partition_and_round_only():
    assert same(fit(), fit())
    assert not same(fit(), fit(seed=2))
    assert not same(fit(), fit(server_round=2))
    assert not same(fit(), client(partition=1).fit(WEIGHTS, CONFIG)[0])


def test_a_trained_model_is_not_overwritten_by_the_next_client():
    task, model = MNIST_LOGISTIC, MNIST_LOGISTIC.model()
    first = TaskClient(task, model, EXAMPLES, partition=0).fit(WEIGHTS, CONFIG)[0]
    kept = [array.copy() for array in first]
    TaskClient(task, model, EXAMPLES, partition=1).fit(WEIGHTS, CONFIG)
    assert same(first, kept)


def test_what_was_received_is_not_changed():
    received = [array.copy() for array in WEIGHTS]
    client().fit(received, CONFIG)
    client().gradient(received, CONFIG)
    assert same(received, WEIGHTS)


def test_the_proximal_term_pulls_towards_the_model_received():
    """The second full-batch step has the gradient g(w1) + mu (w1 - w0)."""
    trained = fit(batch_size=0, local_steps=2, proximal_mu=3.0)
    start = [array.astype(np.float64) for array in WEIGHTS]
    g0 = softmax_gradient(start, INPUTS, TARGETS)
    one = [w - 0.1 * g for w, g in zip(start, g0, strict=True)]
    g1 = softmax_gradient(one, INPUTS, TARGETS)
    for ours, w0, w1, g in zip(trained, start, one, g1, strict=True):
        np.testing.assert_allclose(ours, w1 - 0.1 * (g + 3.0 * (w1 - w0)), atol=2e-6)


@pytest.mark.parametrize("chunk", [1, 7, 1000])
def test_gradient_is_that_of_the_mean_loss_whatever_the_chunks(chunk, monkeypatch):
    monkeypatch.setattr(base, "GRADIENT_BATCH", chunk)
    gradient, count, metrics = client().gradient(WEIGHTS, {})
    for ours, g in zip(gradient, softmax_gradient(WEIGHTS, INPUTS, TARGETS), strict=True):
        np.testing.assert_allclose(ours, g, atol=1e-6)
    assert count == 23
    assert metrics["train-loss"] == pytest.approx(client().evaluate(WEIGHTS, {})[0], rel=1e-5)


def test_what_is_no_parameter_has_gradient_zero():
    def model():
        return nn.Sequential(nn.Flatten(), nn.BatchNorm1d(784), nn.Linear(784, 10))

    task = dataclasses.replace(MNIST_LOGISTIC, model=model)
    weights = [array.numpy() for array in task.model().state_dict().values()]
    gradient, _, _ = client(task).gradient(weights, {})
    assert [array.shape for array in gradient] == [array.shape for array in weights]
    names = list(task.model().state_dict())
    assert not gradient[names.index("1.running_mean")].any()
    assert gradient[names.index("2.weight")].any()


def test_evaluate_by_hand():
    model = nn.Sequential(nn.Flatten(), nn.Linear(1, 2, bias=False))
    with torch.no_grad():
        model[1].weight.copy_(torch.tensor([[1.0], [-1.0]]))  # class 0 for positive inputs
    examples = Examples(torch.tensor([[2.0], [3.0], [-1.0], [5.0]]), torch.tensor([0, 0, 1, 1]))
    loss, accuracy = evaluate(MNIST_LOGISTIC, model, examples)
    assert accuracy == 0.75
    margins = np.array([4.0, 6.0, 2.0, -10.0])
    assert loss == pytest.approx(np.log1p(np.exp(-margins)).mean(), rel=1e-6)


def test_evaluation_does_not_depend_on_its_batches(monkeypatch):
    whole = client().evaluate(WEIGHTS, {})
    monkeypatch.setattr(base, "EVALUATION_BATCH", 4)
    parts = client().evaluate(WEIGHTS, {})
    assert parts[0] == pytest.approx(whole[0], rel=1e-6)
    assert parts[1:] == whole[1:]


def test_batches():
    assert [len(y) for _, y in EXAMPLES.batches(10)] == [10, 10, 3]
    assert [len(y) for _, y in EXAMPLES.batches(0)] == [23]
    assert [len(y) for _, y in EXAMPLES.batches(100)] == [23]
    shuffled = EXAMPLES.shuffled(torch.Generator().manual_seed(0))
    pairs = {
        (x.sum().item(), y.item()) for x, y in zip(*dataclasses.astuple(EXAMPLES), strict=True)
    }
    assert pairs == {(x.sum().item(), y.item())
                     for x, y in zip(*dataclasses.astuple(shuffled), strict=True)}  # fmt: skip
    assert not torch.equal(shuffled.targets, EXAMPLES.targets)


def test_arrays_that_do_not_fit_the_model_are_refused():
    model = MNIST_LOGISTIC.model()
    with pytest.raises(ValueError, match="has 2 arrays, got 1"):
        load_arrays(model, WEIGHTS[:1])
    with pytest.raises(ValueError, match=r"'1\.bias' is \(9,\), not \(10,\)"):
        load_arrays(model, [WEIGHTS[0], WEIGHTS[1][:9]])


@pytest.mark.parametrize("examples", [None, Examples(torch.zeros(0, 1), torch.zeros(0))])
def test_a_client_without_examples_says_so(examples):
    empty = client(examples=examples)
    for work, split in ((empty.fit, "train"), (empty.gradient, "train"), (empty.evaluate, "test")):
        with pytest.raises(ValueError, match=f"no {split} examples"):
            work(WEIGHTS, CONFIG)


def test_the_initial_model_is_seeded_and_leaves_torchs_state_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    first = MNIST_2NN.initial_model(1).state_dict()
    assert torch.equal(torch.rand(3), expected)
    again, other = MNIST_2NN.initial_model(1), MNIST_2NN.initial_model(2)
    assert all(torch.equal(first[name], value) for name, value in again.state_dict().items())
    assert not all(torch.equal(first[name], value) for name, value in other.state_dict().items())
