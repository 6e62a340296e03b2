"""Evaluation of the global model on test or validation examples, in one process or several.

The batches and the order in which their results are added are fixed, so both give the same numbers.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
from flwr.app import ArrayRecord
from torch import nn

from fedavg_app.config import RunConfig, TrainingConfig
from fedavg_app.partitioning import partition
from strategies.rounds.flower_arrays import from_record
from tasks.base import Task
from tasks.data.dataset import DataError, Dataset, leaves, map_leaves
from tasks.model_arrays import load_arrays
from tasks.training.batch_size import efficient_batch_size
from tasks.training.evaluation import BatchResult, Evaluator, Scores, combine
from tasks.training.examples import Examples
from tasks.training.random_streams import derive_seed, seeded

# Evaluates a global model: its arrays -> its scores on the examples of a split.
Evaluate = Callable[[ArrayRecord], Scores]
# The splits on which it is evaluated.
TEST, VALIDATION = "test", "validation"
# The first example of a batch, and the first after it.
Batch = tuple[int, int]
# Prepared examples are kept up to this many bytes in each process; the others are prepared every
# time.
PREPARED_BYTES = 128 * 2**20


class CentralEvaluation:
    """Evaluates models on a data set's test or validation examples, in this process."""

    def __init__(
        self, task: Task, data: Dataset, config: TrainingConfig, split: str = TEST
    ) -> None:
        self._device = device = config.torch_device
        self._task, self._data, self._config, self._split = task, data, config, split
        # The arrays that do not travel are those of the run's initial model.
        self._network = task.networks(config.seed, device)
        self._examples = _examples(task, data, config, split, device)
        self._prepared: dict[Batch, tuple[Any, Any]] = {}
        self._room = PREPARED_BYTES

    def __call__(self, arrays: ArrayRecord) -> Scores:
        """Return the scores of the model with these arrays."""
        return combine(self._task.test_metrics(), self.batch_results(arrays, self._batches))

    @cached_property
    def _batches(self) -> list[Batch]:
        return evaluation_batches(self._task, self._data, self._config, self._split)

    def batch_results(self, arrays: ArrayRecord, batches: Sequence[Batch]) -> list[BatchResult]:
        """Return the results of some of the `evaluation_batches`."""
        values = from_record(arrays)

        def network() -> nn.Module:
            model = self._network()
            load_arrays(model, values)
            return model

        evaluator = Evaluator(self._task, network, self._config.seed)
        return [evaluator.batch(batch[0], *self._batch(batch)) for batch in batches]

    def _batch(self, batch: Batch) -> tuple[Any, Any]:
        """Return a batch's prepared inputs and its targets."""
        if batch not in self._prepared:
            # Examples that are set aside may have the random transforms of training.
            with seeded(derive_seed(self._config.seed, batch[0], "read"), self._device):
                inputs, targets = self._examples.slice(*batch)
            if (size := sum(array.nbytes for array in leaves(inputs))) > self._room:
                return inputs, targets
            self._room -= size
            self._prepared[batch] = inputs, targets
        return self._prepared[batch]


def evaluation_batches(
    task: Task, data: Dataset, config: TrainingConfig, split: str = TEST
) -> list[Batch]:
    """Return the batches in which a split's examples are evaluated on the config's device.

    Raises:
        DataError: There are none.
    """
    examples = _examples(task, data, config, split, torch.device("cpu"))
    if len(examples) == 0:
        raise DataError(f"{data.description} has no {split} examples, which every evaluation needs")
    first, _ = examples.slice(0, 1)
    device = config.torch_device
    size = efficient_batch_size(task, None, map_leaves(lambda array: array.to(device), first))
    return [(start, start + size) for start in range(0, len(examples), size)]


def _examples(
    task: Task, data: Dataset, config: TrainingConfig, split: str, device: torch.device
) -> Examples:
    """Return a split on a device; for validation the task's own, or that of all clients."""
    if split == TEST:
        return task.examples(data.test, device)
    if data.validation is not None:
        return task.examples(data.validation, device)
    assert isinstance(config, RunConfig)
    rows = torch.from_numpy(partition(data, VALIDATION, config).examples).to(device)
    return replace(task.examples(data.train, device), rows=rows)
