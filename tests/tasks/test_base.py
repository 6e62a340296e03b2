import dataclasses

import numpy as np
import pytest
import torch
from torch import nn

from tasks.base import Examples, evaluate, load_arrays
from tasks.mnist import MNIST_2NN, MNIST_LOGISTIC

RNG = np.random.default_rng(0)
EXAMPLES = Examples(
    torch.from_numpy(RNG.normal(size=(23, 1, 28, 28)).astype(np.float32)),
    torch.from_numpy(RNG.integers(0, 10, 23)),
)
WEIGHTS = [np.zeros(shape, np.float32) for shape in ((10, 784), (10,))]


def test_evaluate_by_hand():
    model = nn.Sequential(nn.Flatten(), nn.Linear(1, 2, bias=False))
    with torch.no_grad():
        model[1].weight.copy_(torch.tensor([[1.0], [-1.0]]))  # class 0 for positive inputs
    examples = Examples(torch.tensor([[2.0], [3.0], [-1.0], [5.0]]), torch.tensor([0, 0, 1, 1]))
    loss, accuracy = evaluate(MNIST_LOGISTIC, model, examples)
    assert accuracy == 0.75
    margins = np.array([4.0, 6.0, 2.0, -10.0])
    assert loss == pytest.approx(np.log1p(np.exp(-margins)).mean(), rel=1e-6)


def test_batches():
    assert [len(y) for _, y in EXAMPLES.batches(10)] == [10, 10, 3]
    assert [len(y) for _, y in EXAMPLES.batches(0)] == [23]
    assert [len(y) for _, y in EXAMPLES.batches(100)] == [23]
    shuffled = EXAMPLES.shuffled(torch.Generator().manual_seed(0)).prepared()
    assert pairs(shuffled) == pairs(EXAMPLES)
    assert not torch.equal(shuffled.targets, EXAMPLES.targets)


def pairs(examples):
    return {
        (x.sum().item(), y.item())
        for inputs, targets in examples.batches(1)
        for x, y in zip(inputs, targets, strict=True)
    }


def test_stored_examples_are_prepared_when_needed_and_stay_as_they_are():
    def prepare(inputs):
        prepared.append(len(inputs))
        return inputs.mul_(2)

    prepared = []
    stored = Examples(torch.arange(6.0), torch.arange(6), prepare)
    some = dataclasses.replace(stored, rows=torch.tensor([5, 1, 3]))
    assert (len(stored), len(some), prepared) == (6, 3, [])
    assert [(x.tolist(), y.tolist()) for x, y in some.batches(2)] == [
        ([10.0, 2.0], [5, 1]), ([6.0], [3]),
    ]  # fmt: skip
    assert [x.tolist() for x, _ in stored.batches(0)] == [[0, 2, 4, 6, 8, 10]]
    assert prepared == [2, 1, 6]
    first = some.shuffled(torch.Generator().manual_seed(0), limit=1).prepared()
    assert first.inputs.item() == 2 * first.targets.item()
    assert stored.inputs.tolist() == [0, 1, 2, 3, 4, 5]


def test_arrays_that_do_not_fit_the_model_are_refused():
    model = MNIST_LOGISTIC.model()
    with pytest.raises(ValueError, match="has 2 arrays, got 1"):
        load_arrays(model, WEIGHTS[:1])
    with pytest.raises(ValueError, match=r"'1\.bias' is \(9,\), not \(10,\)"):
        load_arrays(model, [WEIGHTS[0], WEIGHTS[1][:9]])


def test_the_initial_model_is_seeded_and_leaves_torchs_state_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    first = MNIST_2NN.initial_model(1).state_dict()
    assert torch.equal(torch.rand(3), expected)
    again, other = MNIST_2NN.initial_model(1), MNIST_2NN.initial_model(2)
    assert all(torch.equal(first[name], value) for name, value in again.state_dict().items())
    assert not all(torch.equal(first[name], value) for name, value in other.state_dict().items())
