"""The trackers, with their files on this machine.

Each is imported where it is used: pytest's other processes, which collect this file, need none.
"""

import sys
from typing import Any
from unittest.mock import MagicMock, create_autospec

import pytest

from fedavg_app.callbacks.trackers import PROJECT, TENSORBOARD_FOLDER, TensorBoard, WandB
from fedavg_app.results.history import RoundMetrics, TrainingResult
from tests.support.documents import ROOT, examples
from tests.support.training_runs import MODEL, history, training_run

ROUNDS = history([0.1, None, 0.5, 0.6])


def log(callback, error=None, rounds=ROUNDS):
    for metrics in rounds:
        callback.on_round_end(metrics, MODEL)
    callback.on_train_end(TrainingResult(list(rounds), MODEL, error=error))


def tensorboard_points(folder, name):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder / TENSORBOARD_FOLDER)).Reload().Scalars(name)
    return [(event.step, pytest.approx(event.value)) for event in events]


def test_tensorboard_has_the_metrics_of_every_round(tmp_path):
    log(TensorBoard(training_run(tmp_path)))
    assert tensorboard_points(tmp_path, "accuracy") == [(0, 0.1), (2, 0.5), (3, 0.6)]
    assert tensorboard_points(tmp_path, "loss/test") == [(0, 0.9), (2, 0.5), (3, 0.4)]
    assert tensorboard_points(tmp_path, "loss/training") == [(1, 0.5), (2, 0.5), (3, 0.5)]
    for name, value in (("bytes/up", "bytes_up"), ("bytes/down", "bytes_down")):
        expected = [(metrics.round, getattr(metrics, value)) for metrics in ROUNDS]
        assert tensorboard_points(tmp_path, name) == expected
    assert tensorboard_points(tmp_path, "rejected") == [(metrics.round, 0) for metrics in ROUNDS]


def test_rounds_repeated_by_a_resumed_training_replace_the_earlier_rounds(tmp_path):
    for first, last in ((0, 3), (2, 4)):
        rounds = [RoundMetrics(n, accuracy=n / 10 + first / 1000) for n in range(first, last + 1)]
        log(TensorBoard(training_run(tmp_path)), rounds=rounds)
    expected = [(0, 0.0), (1, 0.1), (2, 0.202), (3, 0.302), (4, 0.402)]
    assert tensorboard_points(tmp_path, "accuracy") == expected


@pytest.mark.parametrize(("error", "status"), [(None, "FINISHED"), (KeyError("x"), "FAILED")])
def test_example_of_the_page_logs_every_test_the_config_and_the_end_to_mlflow(
    tmp_path, monkeypatch, error, status
):
    from mlflow import MlflowClient

    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "mlruns").as_uri())
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    written = dict[str, Any]()
    exec(examples(ROOT / "docs" / "tracking.md")["mlflow_log.py"], written)
    log(written["MLflow"](training_run(tmp_path / "the-run")), error)
    client = MlflowClient()
    experiment = client.get_experiment_by_name(PROJECT)
    (run,) = client.search_runs([experiment.experiment_id])
    assert (run.info.run_name, run.info.status) == ("the-run", status)
    assert run.data.params["task"] == "mnist-logistic"
    points = client.get_metric_history(run.info.run_id, "accuracy")
    assert [(point.step, point.value) for point in points] == [(0, 0.1), (2, 0.5), (3, 0.6)]
    points = client.get_metric_history(run.info.run_id, "bytes_up")
    assert [point.value for point in points] == [metrics.bytes_up for metrics in ROUNDS]


@pytest.mark.parametrize(("error", "status"), [(None, 0), (KeyError("x"), 1)])
def test_wandb_has_every_round_the_config_and_the_summary(tmp_path, monkeypatch, error, status):
    import wandb

    run = MagicMock(summary={})
    init = create_autospec(wandb.init, return_value=run)
    monkeypatch.setattr(wandb, "init", init)
    log(WandB(training_run(tmp_path / "the-run")), error)
    given = init.call_args.kwargs
    assert (given["name"], given["config"]["task"]) == ("the-run", "mnist-logistic")
    logged = [(call.args[0], call.kwargs["step"]) for call in run.log.call_args_list]
    accuracy = [(step, found["accuracy"]) for found, step in logged if "accuracy" in found]
    assert accuracy == [(0, 0.1), (2, 0.5), (3, 0.6)]
    assert [found["bytes/up"] for found, _ in logged] == [metrics.bytes_up for metrics in ROUNDS]
    assert run.summary["best-accuracy"] == 0.6
    run.finish.assert_called_once_with(exit_code=status)


@pytest.mark.parametrize("name", ["tensorboard", "wandb"])
def test_missing_package_is_one_line_before_the_training(monkeypatch, command_line, tmp_path, name):
    for module in [found for found in sys.modules if found.partition(".")[0] == name]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.delitem(sys.modules, "torch.utils.tensorboard", raising=False)
    monkeypatch.setitem(sys.modules, name, None)  # its import fails
    words = ["central", "--task=mnist-logistic", "--data-source=embedded", f"--run-dir={tmp_path}"]
    status, _, error = command_line(*words, "--callback", name)
    assert status == 1
    expected = f"error: {name} is missing; run: pip install 'fedavg-app[{name}]'"
    assert error.splitlines()[-1] == expected
    assert not list(tmp_path.iterdir())
