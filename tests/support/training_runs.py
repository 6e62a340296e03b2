"""What callbacks are told of a training, for tests of callbacks."""

from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord

from fedavg_app.callbacks.base import TrainingRun
from fedavg_app.config import RunConfig, with_clients
from fedavg_app.results.history import RoundMetrics
from fedavg_app.training_plan import make_plan
from tasks.mnist import MNIST_LOGISTIC
from tests.support.labels import labelled_dataset

MODEL = ArrayRecord({"w": Array(np.arange(4, dtype=np.float32))})


def training_run(
    folder: Path = Path(), completed: tuple[RoundMetrics, ...] = (), **changes
) -> TrainingRun:
    """Return a run of a `RunConfig` with some keys changed."""
    config = with_clients(RunConfig(task="mnist-logistic", run_dir=str(folder), **changes))
    data = labelled_dataset(np.arange(60) % 3)
    plan = make_plan(config, MNIST_LOGISTIC)
    return TrainingRun(config, MNIST_LOGISTIC, plan, data, completed, folder, config.local_work)


def history(accuracies: list[float | None]) -> list[RoundMetrics]:
    """Return the metrics of rounds with these test accuracies and 1.5 MB of traffic each."""
    rounds: list[RoundMetrics] = []
    for number, accuracy in enumerate(accuracies):
        metrics = RoundMetrics(
            number, accuracy=accuracy, test_loss=None if accuracy is None else 1 - accuracy,
            train_loss=0.5 if number else None, bytes_down=1_000_000 if number else 0,
            bytes_up=500_000 if number else 0, seconds=1.0,
        )  # fmt: skip
        rounds.append(metrics.with_totals(rounds[-1] if rounds else None))
    return rounds
