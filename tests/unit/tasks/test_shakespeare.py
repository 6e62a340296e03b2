import numpy as np
import pytest
import torch
from torch.nn import functional

from tasks.data.shakespeare import encode
from tasks.model_arrays import read_arrays
from tasks.shakespeare import SHAKESPEARE_LSTM
from tasks.training import batch_size
from tasks.training.evaluation import combine
from tasks.training.local_training import TaskClient
from tests.support.task_clients import gradient


def small():
    """Return three roles, whose lines have 1 to 40 characters."""
    lines = ["a" * (1 + 13 * k % 40) for k in range(12)]
    return encode({("p", role): lines for role in "xyz"})


def test_loss_and_accuracy_equal_means_over_single_characters():
    _, test = small()
    model = SHAKESPEARE_LSTM.initial_model(2).eval()
    examples = SHAKESPEARE_LSTM.examples(test, torch.device("cpu"))
    client = TaskClient(SHAKESPEARE_LSTM, lambda: model, None, examples)
    results = client.test(read_arrays(model, client.arrays.sent), 0)
    scores = combine(SHAKESPEARE_LSTM.test_metrics(), results)
    losses, right = [], []
    for inputs, targets in zip(test.inputs, test.targets, strict=True):
        length = (targets >= 0).sum()
        with torch.no_grad():  # each line alone, not in a batch with longer lines
            logits = model(torch.from_numpy(inputs[None, :length].astype(np.int64)))[0]
        wanted = torch.from_numpy(targets[:length])
        losses += functional.cross_entropy(logits, wanted, reduction="none").tolist()
        right += (logits.argmax(dim=1) == wanted).tolist()
    assert scores.loss == pytest.approx(np.mean(losses), rel=1e-5)
    assert scores.metrics == {"accuracy": pytest.approx(np.mean(right))}


def test_full_gradient_weights_characters_not_lines(monkeypatch):
    """The gradient of the mean over all characters, also in chunks of lines of unequal lengths."""
    train, _ = small()
    model = SHAKESPEARE_LSTM.initial_model(2).double()
    weights = [array.numpy().copy() for array in model.state_dict().values()]
    examples = SHAKESPEARE_LSTM.examples(train, torch.device("cpu"), training=True)
    client = TaskClient(SHAKESPEARE_LSTM, lambda: model, examples)
    whole, count, metrics = gradient(client, weights, {})
    monkeypatch.setattr(batch_size, "MAX_BATCH", 7)
    chunked, _, chunked_metrics = gradient(client, weights, {})
    assert count == len(train) == 30
    assert metrics["train-loss"] == pytest.approx(chunked_metrics["train-loss"], rel=1e-5)
    for a, b in zip(whole, chunked, strict=True):
        # A part's share of the characters is a float32.
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=2**-24 * np.abs(a).max())
