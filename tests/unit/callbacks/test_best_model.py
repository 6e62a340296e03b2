"""The best model, as it is kept and saved."""

from dataclasses import replace

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord
from safetensors import safe_open
from safetensors.numpy import load_file

from fedavg_app.callbacks.best_model import BestModel
from fedavg_app.results.metrics import TrainingResult
from tasks.mnist import MNIST_LOGISTIC
from tests.support.training_runs import history, training_run


def model(number):
    """Return a model of the task all of whose weights are this number."""
    state = MNIST_LOGISTIC.model().state_dict()
    return ArrayRecord(
        {key: Array(np.full(tuple(w.shape), number, np.float32)) for key, w in state.items()}
    )


def saved(folder):
    """Return the number of the model in the file, and what the file says of it."""
    with safe_open(folder / "best.safetensors", framework="numpy") as file:
        about = file.metadata()
    return load_file(folder / "best.safetensors")["1.bias"][0], about


@pytest.mark.parametrize(
    ("accuracies", "best"),
    [([0.1, 0.5, 0.4], 1), ([0.1, 0.5, 0.5], 1), ([0.9, 0.5, 0.4], 0), ([0.1, None, 0.3], 2)],
)
def test_first_model_of_the_best_accuracy_is_saved(tmp_path, accuracies, best):
    callback = BestModel(training_run(tmp_path))
    for metrics in history(accuracies):
        callback.on_round_end(metrics, model(metrics.round))
    assert not list(tmp_path.iterdir())  # there are no checkpoints
    callback.on_train_end(TrainingResult([]))
    assert saved(tmp_path) == (best, {"round": str(best), "accuracy": str(accuracies[best])})


def test_resumed_training_knows_the_best_of_before(tmp_path):
    run = training_run(tmp_path, checkpoint_every=2)
    rounds = history([0.1, 0.8, 0.6, 0.7, 0.9])
    first = BestModel(run)
    for metrics in rounds[:4]:  # killed after round 3; the checkpoint is of round 2
        first.on_round_end(metrics, model(metrics.round))
    again = BestModel(replace(run, completed=rounds[:3]))
    assert again.model is not None
    assert again.model["1.bias"].numpy()[0] == 1
    assert list(again.model) == list(model(1))
    again.on_round_end(rounds[3], model(3))
    again.on_train_end(TrainingResult([]))
    assert saved(tmp_path)[0] == 1
    again.on_round_end(rounds[4], model(4))
    assert saved(tmp_path)[0] == 4


def test_best_of_the_last_checkpoint_is_kept_until_the_next_is_complete(tmp_path):
    """The run ends in round 4, whose checkpoint fails after the best model was written."""
    (tmp_path / "checkpoint").mkdir()
    run = training_run(tmp_path, checkpoint_every=2)
    first = BestModel(run)
    rounds = history([0.1, 0.7, 0.6, 0.5, 0.8])
    for metrics in rounds:
        first.on_round_end(metrics, model(metrics.round))
    first.on_train_end(TrainingResult([]))
    assert saved(tmp_path)[0] == 4
    resumed = BestModel(replace(run, completed=rounds[:3]))
    assert resumed.model["1.bias"].numpy()[0] == 1
    assert saved(tmp_path)[0] == 1
