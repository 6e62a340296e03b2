"""A task's client with lists of arrays and configs as messages have them, for tests."""

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
