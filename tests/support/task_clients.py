"""A task's client with lists of arrays and configs as messages have them, for tests."""

import numpy as np

from tasks.training.training_settings import TrainingSettings


def fit(client, arrays, config, memory=None, offset=None):
    """Return the trained arrays, the number of examples, and metrics."""
    return _listed(client.train(_named(client, arrays), settings(config), memory, offset))


def gradient(client, arrays, config, memory=None):
    """Return the gradient's arrays, the number of examples, and metrics."""
    return _listed(client.gradient(_named(client, arrays), settings(config), memory))


def settings(config):
    return TrainingSettings.of(config)


def _named(client, arrays):
    return dict(zip(client.arrays.sent, arrays, strict=True))


def _listed(result):
    return list(result.arrays.values()), result.num_examples, result.metrics


def softmax_gradient(weights, inputs, targets):
    """Return the gradient of mean cross-entropy of logistic regression, in float64."""
    x = inputs.reshape(len(inputs), -1).astype(np.float64)
    logits = x @ weights[0].T + weights[1]
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    p[np.arange(len(x)), targets] -= 1
    return [p.T @ x / len(x), p.mean(axis=0)]
