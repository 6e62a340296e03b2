import numpy as np
import pytest
import torch
from torch import nn

from tasks.mnist import MNIST_LOGISTIC
from tasks.training import batch_size
from tasks.training.evaluation import combine, evaluate, load_arrays
from tasks.training.examples import Examples

ARRAYS = {
    "1.weight": np.full((10, 784), 0.5, np.float32), "1.bias": np.full(10, 0.5, np.float32),
}  # fmt: skip


def test_loss_and_accuracy_match_values_computed_by_hand():
    model = nn.Sequential(nn.Flatten(), nn.Linear(1, 2, bias=False))
    with torch.no_grad():
        model[1].weight.copy_(torch.tensor([[1.0], [-1.0]]))  # class 0 for positive inputs
    examples = Examples(torch.tensor([[2.0], [3.0], [-1.0], [5.0]]), torch.tensor([0, 0, 1, 1]))
    loss, accuracy = evaluate(MNIST_LOGISTIC, model, examples)
    assert accuracy == 0.75
    margins = np.array([4.0, 6.0, 2.0, -10.0])
    assert loss == pytest.approx(np.log1p(np.exp(-margins)).mean(), rel=1e-6)


def test_result_is_independent_of_batch_size(monkeypatch):
    rng = np.random.default_rng(0)
    model = MNIST_LOGISTIC.initial_model(1)
    examples = Examples(
        torch.from_numpy(rng.normal(size=(23, 1, 28, 28)).astype(np.float32)),
        torch.from_numpy(rng.integers(0, 10, 23)),
    )
    whole = evaluate(MNIST_LOGISTIC, model, examples)
    monkeypatch.setattr(batch_size, "MAX_BATCH", 4)
    batched = evaluate(MNIST_LOGISTIC, model, examples)
    assert batched[0] == pytest.approx(whole[0], rel=1e-6)
    assert batched[1] == whole[1]


def test_combined_result_weights_batches_by_their_predictions():
    assert combine([(6.0, 2, 3), (2.0, 1, 1)]) == (2.0, 0.75)


def test_model_is_evaluated_without_dropout():
    model = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(4, 10)).train()
    examples = Examples(torch.ones(8, 4), torch.zeros(8, dtype=torch.int64))
    results = {evaluate(MNIST_LOGISTIC, model, examples) for _ in range(5)}
    assert len(results) == 1


def test_loaded_arrays_are_copied_into_the_model():
    model = MNIST_LOGISTIC.model()
    received = {name: array.copy() for name, array in ARRAYS.items()}
    loaded = load_arrays(model, received)
    assert list(loaded) == ["1.weight", "1.bias"]
    received["1.weight"][:] = 7
    assert all((value == 0.5).all() for value in model.state_dict().values())


def test_arrays_that_are_not_named_stay_as_they_are():
    model = MNIST_LOGISTIC.initial_model(1)
    weight = model.state_dict()["1.weight"].clone()
    assert list(load_arrays(model, {"1.bias": ARRAYS["1.bias"]})) == ["1.bias"]
    assert torch.equal(model.state_dict()["1.weight"], weight)


def test_arrays_of_another_name_or_shape_are_rejected():
    model = MNIST_LOGISTIC.model()
    with pytest.raises(ValueError, match=r"the model has no array 'weight'"):
        load_arrays(model, {"weight": ARRAYS["1.weight"]})
    with pytest.raises(ValueError, match=r"'1\.bias' is \(9,\), not \(10,\)"):
        load_arrays(model, {"1.bias": ARRAYS["1.bias"][:9]})
