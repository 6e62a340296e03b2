import json
import logging
import time
from dataclasses import replace

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord
from safetensors import safe_open

import strategies
from fedavg_app.callbacks import training_callbacks
from fedavg_app.callbacks.base import Callback
from fedavg_app.callbacks.run_files import RunFiles
from fedavg_app.callbacks.training_callbacks import Checkpoints, TrainingCallbacks
from fedavg_app.errors import ConfigError, RunError
from fedavg_app.results.history import RoundMetrics, TrainingResult
from tests.support.training_runs import MODEL, history, training_run

ROUNDS = history([0.1, 0.5])


class Recorder(Callback):
    """Notes what it is told; raises ``error`` in the method named ``fails_in``."""

    def __init__(self, run, error=None, fails_in="on_round_end"):
        self.run, self.error, self.fails_in = run, error, fails_in
        self.rounds, self.result = [], None

    def on_round_end(self, metrics, model):
        self.rounds.append(metrics)
        self._fail("on_round_end")

    def on_train_end(self, result):
        self.result = result
        self._fail("on_train_end")

    def _fail(self, method):
        if self.error is not None and method == self.fails_in:
            raise self.error


@pytest.fixture
def made():
    """Return the callbacks that the test made, in their order."""
    return []


def make(made, *arguments):
    def make_recorder(run):
        made.append(Recorder(run, *arguments))
        return made[-1]

    return make_recorder


def train(tmp_path, callbacks, error=None):
    """Tell the callbacks of a training of two rounds, which raises ``error`` after them."""
    result = TrainingResult(ROUNDS, MODEL)
    with TrainingCallbacks(training_run(tmp_path), callbacks) as training:
        for metrics in ROUNDS:
            training.on_round_end(metrics, MODEL)
        if error is not None:
            raise error
    return training, result


def summary(tmp_path):
    (path,) = tmp_path.glob("*/summary.json")
    return json.loads(path.read_text())


@pytest.mark.parametrize(
    ("accuracies", "best"),
    [([0.1, 0.5, 0.4], 1), ([0.1, 0.5, 0.5], 1), ([0.9, 0.5, 0.4], 0), ([0.1, None, 0.3], 2)],
)
@pytest.mark.parametrize("completed", [0, 2])
def test_first_model_of_the_best_accuracy_is_saved(tmp_path, accuracies, best, completed):
    rounds = history(accuracies)
    models = [ArrayRecord({"w": Array(np.full(3, number, np.float32))}) for number in range(3)]
    run = replace(
        training_run(tmp_path, tuple(rounds[:completed])), best_model=models[min(best, 1)]
    )
    with TrainingCallbacks(run) as training:
        for metrics in rounds[completed:]:
            training.on_round_end(metrics, models[metrics.round])
    assert training.result.best_model is models[best]
    (path,) = tmp_path.glob("*/best.safetensors")
    with safe_open(path, framework="numpy") as file:
        assert file.metadata() == {"round": str(best), "accuracy": str(accuracies[best])}
        assert file.get_tensor("w")[0] == best


def test_callbacks_get_the_folder_every_round_and_the_result(tmp_path, made, capsys):
    training, result = train(tmp_path, [make(made), make(made)])
    (folder,) = tmp_path.iterdir()
    assert training.run.folder == folder
    for callback in made:
        assert callback.run.folder == folder
        assert callback.rounds == ROUNDS
        assert callback.result == replace(result, folder=folder, best_model=MODEL)
    assert training.result is made[0].result
    assert str(folder) in capsys.readouterr().out


@pytest.mark.parametrize("method", ["on_round_end", "on_train_end"])
def test_failing_callback_is_logged_and_the_training_continues(tmp_path, made, caplog, method):
    failing, other = make(made, ZeroDivisionError("a bug"), method), make(made)
    train(tmp_path, [failing, other])
    assert made[0].rounds == made[1].rounds == ROUNDS
    assert made[1].result is not None
    assert summary(tmp_path)["status"] == "finished"
    logged = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert len(logged) == (2 if method == "on_round_end" else 1)
    assert logged[0].getMessage() == f"callback Recorder.{method} failed; the run continues"
    assert "ZeroDivisionError: a bug" in caplog.text


@pytest.mark.parametrize("error", [RunError("disk full"), ConfigError("run-dir", "x", "full")])
def test_user_error_of_a_callback_ends_the_training(tmp_path, made, error):
    with pytest.raises(type(error)) as caught:
        train(tmp_path, [make(made, error), make(made)])
    assert caught.value is error
    assert made[0].rounds == ROUNDS[:1]
    assert made[1].rounds == []
    assert made[0].result.error is made[1].result.error is error
    found = summary(tmp_path)
    assert (found["status"], found["reason"]) == ("failed", str(error))


def test_training_error_is_not_replaced_by_a_callback_error(tmp_path, made):
    with pytest.raises(KeyError, match="the first"):
        train(
            tmp_path,
            [make(made, RunError("disk full"), "on_train_end"), make(made)],
            KeyError("the first"),
        )
    assert isinstance(made[1].result.error, KeyError)


@pytest.mark.parametrize("completed", [(), tuple(ROUNDS)])
def test_callback_that_cannot_be_made_leaves_no_folder_but_that_of_a_resumed_run(
    tmp_path, completed
):
    def fail(run):
        raise ConfigError("callback", "mine:Tracker", "no server answers")

    before = tmp_path / "earlier"
    before.mkdir()
    changes = {"resume": str(before)} if completed else {}
    with pytest.raises(ConfigError, match="no server answers"):
        TrainingCallbacks(training_run(tmp_path, completed, **changes), [fail])
    assert [path.name for path in tmp_path.iterdir()] == ["earlier"]
    assert (before / "history.jsonl").is_file() == bool(completed)


@pytest.mark.parametrize("resumed", [False, True])
def test_folder_that_cannot_be_written_is_named_by_the_key_that_gave_it(tmp_path, resumed):
    folder = tmp_path / "gone"
    run = training_run(folder, **({"resume": str(folder)} if resumed else {}))
    with pytest.raises(ConfigError) as caught:
        RunFiles(run)
    key = "resume" if resumed else "run-dir"
    assert str(caught.value).startswith(f"{key} = {str(folder)!r}: cannot write there (No such")


@pytest.mark.parametrize(
    ("keys", "due"),
    [
        ({}, []),
        ({"checkpoint_every": 4}, [0, 4, 8]),
        ({"checkpoint_seconds": 60}, [3, 6, 9]),  # rounds of 25 s: one after each minute
        ({"checkpoint_every": 4, "checkpoint_seconds": 60}, [0, 3, 4, 7, 8]),
    ],
)
def test_checkpoints_are_due_by_rounds_and_by_time(monkeypatch, keys, due):
    now, saved = 1000.0, []
    monkeypatch.setattr(time, "monotonic", lambda: now)
    monkeypatch.setattr(training_callbacks, "save_checkpoint", lambda *args: saved.append(args[2]))
    checkpoints = Checkpoints(strategies.build("fedavg", {}), grid=None)
    for server_round in range(10):
        result = TrainingResult([RoundMetrics(server_round)], MODEL)
        checkpoints.save_if_due(training_run(**keys), result)
        now += 25
    assert [state.history[0].round for state in saved] == due
