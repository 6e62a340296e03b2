import numpy as np
import pytest
import torch
from torch import nn

from tasks.mnist import MNIST_LOGISTIC
from tasks.training.evaluation import evaluate
from tasks.training.examples import Examples


def test_loss_and_accuracy_match_values_computed_by_hand():
    model = nn.Sequential(nn.Flatten(), nn.Linear(1, 2, bias=False))
    with torch.no_grad():
        model[1].weight.copy_(torch.tensor([[1.0], [-1.0]]))  # class 0 for positive inputs
    examples = Examples(torch.tensor([[2.0], [3.0], [-1.0], [5.0]]), torch.tensor([0, 0, 1, 1]))
    loss, accuracy = evaluate(MNIST_LOGISTIC, model, examples)
    assert accuracy == 0.75
    margins = np.array([4.0, 6.0, 2.0, -10.0])
    assert loss == pytest.approx(np.log1p(np.exp(-margins)).mean(), rel=1e-6)


def test_model_is_evaluated_without_dropout():
    model = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(4, 10)).train()
    examples = Examples(torch.ones(8, 4), torch.zeros(8, dtype=torch.int64))
    results = {evaluate(MNIST_LOGISTIC, model, examples) for _ in range(5)}
    assert len(results) == 1
