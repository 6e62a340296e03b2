import torch
from torch import nn

from tasks.mnist import MNIST_LOGISTIC
from tasks.training.evaluation import evaluate
from tasks.training.examples import Examples


def test_model_is_evaluated_without_dropout():
    model = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(4, 10)).train()
    examples = Examples(torch.ones(8, 4), torch.zeros(8, dtype=torch.int64))
    results = {evaluate(MNIST_LOGISTIC, model, examples) for _ in range(5)}
    assert len(results) == 1
