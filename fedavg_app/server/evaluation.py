"""Evaluation of the global model on the data set's test examples, in one process or several.

The batches and the order in which their results are added are fixed, so both give the same figures.
"""

import math
from collections.abc import Callable, Sequence

from flwr.app import ArrayRecord

from fedavg_app.config import TrainingConfig
from fedavg_app.device import pick_device
from strategies.flower_arrays import from_record
from tasks.base import Task
from tasks.data.dataset import Dataset
from tasks.evaluation import (
    EVALUATION_BATCH,
    BatchResult,
    combine,
    evaluate_batch,
    load_parameters,
)
from tasks.examples import Examples

# Evaluates a global model: arrays -> (mean loss, accuracy).
Evaluate = Callable[[ArrayRecord], tuple[float, float]]


class CentralEvaluation:
    """Evaluates models on a data set's test examples, in this process.

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
        return combine(self.batch_results(arrays, range(num_batches(len(self._examples)))))

    def batch_results(self, arrays: ArrayRecord, batches: Sequence[int]) -> list[BatchResult]:
        """Return the results of some of the `num_batches` batches."""
        load_parameters(self._model, list(from_record(arrays).values()))
        results = []
        for number in batches:
            start = number * EVALUATION_BATCH
            batch = self._examples.slice(start, start + EVALUATION_BATCH)
            results.append(evaluate_batch(self._task, self._model, *batch))
        return results


def num_batches(examples: int) -> int:
    """Return the number of batches in which that many examples are evaluated."""
    return math.ceil(examples / EVALUATION_BATCH)
