"""The test of a global model on the data set's test examples, in one process or spread over many.

The batches and the order in which their results are added are fixed, so both give the same figures.
"""

import math
from collections.abc import Callable, Sequence

import torch
from flwr.app import ArrayRecord

from fedavg_app.config import TrainingConfig
from strategies.arrays import from_record
from tasks.base import (
    EVALUATION_BATCH,
    BatchResult,
    Examples,
    Task,
    combine,
    evaluate_batch,
    load_arrays,
)
from tasks.data.store import Dataset

# Tests a global model: arrays -> (mean loss, accuracy).
Evaluate = Callable[[ArrayRecord], tuple[float, float]]


class CentralTest:
    """Tests models on a data set's test examples, here.

    Args:
        task: The learning problem.
        data: Its data set.
        config: Names the device.
    """

    def __init__(self, task: Task, data: Dataset, config: TrainingConfig) -> None:
        device = pick_device(config.device)
        self._task, self._model = task, task.model().to(device)
        self._examples = Examples.stored(task, data.test, device)

    def __call__(self, arrays: ArrayRecord) -> tuple[float, float]:
        """Return (mean loss, accuracy) of the model with these arrays."""
        return combine(self.results(arrays, range(batch_count(len(self._examples)))))

    def results(self, arrays: ArrayRecord, batches: Sequence[int]) -> list[BatchResult]:
        """Return the results of some of the `batch_count` batches."""
        load_arrays(self._model, list(from_record(arrays).values()))
        found = []
        for number in batches:
            start = number * EVALUATION_BATCH
            batch = self._examples.part(start, start + EVALUATION_BATCH)
            found.append(evaluate_batch(self._task, self._model, *batch))
        return found


def batch_count(examples: int) -> int:
    """Return the number of batches that so many examples are tested in."""
    return math.ceil(examples / EVALUATION_BATCH)


def pick_device(name: str) -> torch.device:
    """Return the device for "auto" (the GPU if this process sees one), "cpu" or "cuda"."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)
