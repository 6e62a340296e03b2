import json
import re

import numpy as np
import pytest
from safetensors.numpy import load_file

from fedavg_app.callbacks.run_directory import RunDirectory
from fedavg_app.config import CentralConfig, RunConfig
from fedavg_app.errors import ConfigError, RunError
from fedavg_app.results.metrics import TrainingResult, read_history
from fedavg_app.results.run_folder import create_run_directory
from tests.support.training_runs import MODEL, history, training_run


def test_folder_is_named_by_time_task_and_method(tmp_path):
    folders = [
        create_run_directory(RunConfig(run_dir=str(tmp_path), strategy="my.module:Mine"), "task"),
        create_run_directory(CentralConfig(run_dir=str(tmp_path)), "task"),
    ]
    assert re.fullmatch(r"\d{8}-\d{6}-task-Mine-[0-9a-f]{4}", folders[0].name)
    assert re.fullmatch(r"\d{8}-\d{6}-task-central-[0-9a-f]{4}", folders[1].name)
    assert all(folder.is_dir() and folder.is_absolute() for folder in folders)


def test_config_history_summary_and_model_are_left(tmp_path):
    run = training_run(tmp_path, target_accuracy=0.25, seed=7)
    callback, rounds = RunDirectory(run), history([0.1, 0.2, 0.3])
    for metrics in rounds:
        callback.on_round_end(metrics, MODEL)
    callback.on_train_end(TrainingResult(rounds, MODEL, rounds_to_target=1.5))
    assert {path.name for path in tmp_path.iterdir()} == {
        "config.json", "history.jsonl", "summary.json", "model.safetensors",
    }  # fmt: skip
    assert json.loads((tmp_path / "config.json").read_text()) == run.config.model_dump(
        by_alias=True
    )
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert (summary["status"], summary["rounds"], summary["rounds-to-target"]) == (
        "finished",
        2,
        1.5,
    )
    stored = load_file(tmp_path / "model.safetensors")
    assert np.array_equal(stored["w"], MODEL["w"].numpy())


def test_failed_training_leaves_its_reason_and_no_model(tmp_path):
    callback = RunDirectory(training_run(tmp_path))
    callback.on_train_end(TrainingResult([], error=RunError("no SuperNode")))
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert (summary["status"], summary["reason"]) == ("failed", "no SuperNode")
    assert not (tmp_path / "model.safetensors").exists()


def test_history_of_a_resumed_training_is_cut_back_to_the_completed_rounds(tmp_path):
    rounds = history([0.1, 0.2, 0.3])
    (tmp_path / "history.jsonl").write_text('{"round": 0}\n' * 9 + '{"half a li')
    run = training_run(tmp_path, tuple(rounds[:2]), resume=str(tmp_path))
    callback = RunDirectory(run)
    assert read_history(tmp_path / "history.jsonl") == rounds[:2]
    callback.on_round_end(rounds[2], MODEL)
    callback.on_train_end(TrainingResult(rounds, MODEL))
    assert read_history(tmp_path / "history.jsonl") == rounds
    assert json.loads((tmp_path / "config.json").read_text())["resume"] == ""
    # The seconds of the rounds before count: 1 each.
    assert json.loads((tmp_path / "summary.json").read_text())["seconds"] >= 2


@pytest.mark.parametrize("resumed", [False, True])
def test_folder_that_cannot_be_written_is_named_by_the_key_that_gave_it(tmp_path, resumed):
    folder = tmp_path / "gone"
    run = training_run(folder, **({"resume": str(folder)} if resumed else {}))
    with pytest.raises(ConfigError) as caught:
        RunDirectory(run)
    key = "resume" if resumed else "run-dir"
    assert str(caught.value).startswith(f"{key} = {str(folder)!r}: cannot write there (No such")
