import json
from dataclasses import asdict

import pytest

from fedavg_app.callbacks.training_callbacks import TrainingCallbacks
from fedavg_app.errors import ConfigError
from fedavg_app.results.finished_run import read_config, read_run
from tests.support.training_runs import MODEL, history, training_run

ROUNDS = history([0.1, 0.4, None, 0.6])


@pytest.fixture
def folder(tmp_path):
    """The folder of a training of four rounds."""
    with TrainingCallbacks(training_run(tmp_path, seed=3)) as training:
        for metrics in ROUNDS:
            training.on_round_end(metrics, MODEL)
    return training.run.folder


def test_run_is_read_back_unchanged(folder):
    run = read_run(folder)
    assert run.folder == folder
    assert (run.config["task"], run.config["seed"]) == ("mnist-logistic", 3)
    assert (run.summary["status"], run.summary["best-accuracy"]) == ("finished", 0.6)
    assert list(map(asdict, run.history)) == list(map(asdict, ROUNDS))
    assert read_config(folder) == run.config


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("config.json", "{", "config.json: Expecting property name"),
        ("summary.json", "", "summary.json: Expecting value"),
        ("history.jsonl", "", "history.jsonl: it has no round"),
        ("history.jsonl", "{", "history.jsonl: Expecting property name"),
        ("history.jsonl", "[]", "history.jsonl: list indices"),
        ("history.jsonl", "{}", "history.jsonl: 'rejected'"),
        ("history.jsonl", json.dumps({"rejected": {}, "x": 1}), "history.jsonl: "),
    ],
)
def test_damaged_file_is_named(folder, name, text, why):
    (folder / name).write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_run(folder)
    expected = f"RUN = '{folder}': give the folder of a run that has ended ({why}"
    assert str(caught.value).startswith(expected)
    assert len(str(caught.value).splitlines()) == 1


def test_file_and_missing_folder_have_different_errors(folder):
    with pytest.raises(ConfigError, match=r"\(config.json: Not a directory\)"):
        read_config(folder / "config.json")
    with pytest.raises(ConfigError, match=r"\(config.json: No such file or directory\)"):
        read_config(folder / "nowhere")
