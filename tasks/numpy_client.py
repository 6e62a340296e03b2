"""A task's client as Flower's `NumPyClient`, for Flower apps that are made of such clients."""

import numpy as np
from flwr.client import NumPyClient
from numpy.typing import NDArray

from tasks.model_arrays import Arrays
from tasks.training.evaluation import combine
from tasks.training.local_training import TaskClient
from tasks.training.training_settings import TrainingSettings

Parameters = list[NDArray[np.generic]]
Config = dict[str, bool | bytes | float | int | str]


class NumPyTaskClient(NumPyClient):
    """A `TaskClient` whose arrays are lists, in the order of `ModelArrays.sent`.

    ``ClientApp(client_fn=lambda context: NumPyTaskClient(...).to_client())`` serves Flower's own
    strategies. Their configs have the keys of `TrainingSettings`. Such a client is made for each
    message, so momentum begins anew in every round, and ``optimizer-state = "kept"`` is refused.

    Args:
        client: The client.
        initial: What `get_parameters` returns.
    """

    def __init__(self, client: TaskClient, initial: Parameters) -> None:
        self.client, self.initial = client, initial

    def get_parameters(self, config: Config) -> Parameters:
        """Return the initial arrays, whatever the config is."""
        del config
        return self.initial

    def fit(self, parameters: Parameters, config: Config) -> tuple[Parameters, int, Config]:
        """Return the trained arrays, the number of examples, and metrics; as `TaskClient.train`."""
        settings = TrainingSettings.of(config)
        if settings.optimizer_state == "kept":
            raise ValueError(
                "optimizer-state = 'kept': a NumPyTaskClient keeps nothing; give 'new'"
            )
        arrays, number, metrics = self.client.train(self._named(parameters), settings)
        return list(arrays.values()), number, {**metrics}

    def evaluate(self, parameters: Parameters, config: Config) -> tuple[float, int, Config]:
        """Return the loss, the number of test examples, and metrics; as `TaskClient.test`."""
        seed = TrainingSettings.of(config).seed
        results = self.client.test(self._named(parameters), seed)
        scores = combine(self.client.task.test_metrics(), results, of_client=True)
        return scores.loss, self.client.num_test_examples, {**scores.metrics}

    def _named(self, parameters: Parameters) -> Arrays:
        names = self.client.arrays.sent
        if len(parameters) != len(names):
            raise ValueError(f"{len(names)} arrays of the model travel, got {len(parameters)}")
        return dict(zip(names, parameters, strict=True))
