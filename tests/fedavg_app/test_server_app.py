import json
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Context, RecordDict
from safetensors.numpy import load_file

from fedavg_app import server_app
from fedavg_app.config import RunConfig
from fedavg_app.errors import ConfigError, RunError
from fedavg_app.server_app import run
from tasks.data.store import DataError
from tests.fedavg_app.local_grid import LocalGrid

CONFIG = {
    "task": "mnist-logistic",
    "data-source": "embedded",
    "num-clients": 10,
    "fraction-train": 0.5,
    "num-server-rounds": 3,
}


def run_here(tmp_path, num_nodes=10, tamper=None, **changes):
    values = {**CONFIG, "run-dir": str(tmp_path / "runs"), **changes}
    config = {**RunConfig().model_dump(by_alias=True), **values}
    return run(LocalGrid(config, num_nodes, tamper), config)


def folder(tmp_path):
    (found,) = (tmp_path / "runs").iterdir()
    return found


def test_a_run_leaves_its_artefacts(tmp_path, capsys):
    outcome = run_here(tmp_path, **{"target-accuracy": 0.3})
    found = folder(tmp_path)
    assert {path.name for path in found.iterdir()} == {
        "config.json", "history.jsonl", "summary.json", "model.safetensors", "accuracy.png",
        "accuracy-bits.png", "loss.png",
    }  # fmt: skip
    assert all(path.stat().st_mode & 0o044 for path in found.iterdir())

    lines = [json.loads(line) for line in (found / "history.jsonl").read_text().splitlines()]
    assert [line["round"] for line in lines] == list(range(len(outcome.records)))
    assert json.loads((found / "config.json").read_text())["num-clients"] == 10

    summary = json.loads((found / "summary.json").read_text())
    assert summary["status"] == "finished"
    assert summary["rounds-to-target"] == outcome.rounds_to_target is not None
    assert summary["bytes-up"] == sum(line["bytes_up"] for line in lines)
    assert "embedded" in summary["data"]

    stored = load_file(found / "model.safetensors")
    assert {name: array.shape for name, array in stored.items()} == {
        "1.weight": (10, 784),
        "1.bias": (10,),
    }
    for name, array in outcome.arrays.items():
        assert np.array_equal(stored[name], array.numpy())
    for name in ("accuracy.png", "accuracy-bits.png", "loss.png"):
        assert (found / name).read_bytes().startswith(b"\x89PNG")

    shown = capsys.readouterr().out
    assert str(found) in shown
    assert "embedded MNIST subset" in shown
    assert "round 0/3" in shown
    assert f"{outcome.rounds_to_target:.1f} rounds to 0.3" in shown


def test_the_model_in_memory_is_the_same_as_in_the_next_process(tmp_path):
    """The run's result depends on nothing but its config."""
    first = run_here(tmp_path / "a")
    second = run_here(tmp_path / "b")
    for name, array in first.arrays.items():
        assert np.array_equal(array.numpy(), second.arrays[name].numpy())


@pytest.mark.parametrize(
    ("changes", "error", "fragment"),
    [
        ({"task": "mnist"}, ConfigError, "task = 'mnist': known tasks: cifar10-cnn, cifar10-vgg11"),
        ({"task": "nowhere:TASK"}, ConfigError, "task = 'nowhere:TASK': cannot import"),
        ({"strategy": "fedfoo"}, ConfigError, "strategy = 'fedfoo': known strategies: fedavg"),
        ({"strategy": "json:JSONDecoder"}, ConfigError, "is not a subclass"),
        ({"strategy-args": "eta = 1"}, ConfigError, "strategy-args = 'eta = 1': FedAvg does not"),
        ({"strategy-args": "weights = 'all'"}, ConfigError, "weights = 'all': give 'samples' or"),
        ({"client-mods": "nowhere:mod"}, ConfigError, "client-mods = 'nowhere:mod': cannot import"),
        ({"momentum": 1}, ConfigError, "momentum = 1: should be less than 1"),
        (
            {"partition": "natural"},
            ConfigError,
            "partition = 'natural': mnist-logistic can be split by",
        ),
        (
            {"partition": "classes", "partition-args": "balancedness = 2"},
            ConfigError,
            "partition-args = 'balancedness = 2': should be less than or equal to 1",
        ),
        (
            {"num-clients": 1001, "fraction-evaluate": 0.1},
            ConfigError,
            "num-clients = 1001: more clients than the 1000 examples",
        ),
        ({"fraction-train": 2}, ConfigError, "fraction-train = 2"),
        ({"local-epochs": -1}, ConfigError, "local-epochs = -1"),
        ({"batch-size": -1}, ConfigError, "batch-size = -1"),
        ({"num-clients": 4001}, ConfigError, "num-clients = 4001: more clients than the 4000"),
        ({"num-clients": 11}, ConfigError, '--federation-config "num-supernodes=11'),
        ({"data-source": "auto", "data-dir": "/nowhere"}, DataError, "data-dir = '/nowhere'"),
        ({"device": "cuda"}, ConfigError, "device = 'cuda': no CUDA device"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(tmp_path, monkeypatch, changes, error, fragment):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(error) as caught:
        run_here(tmp_path, **{"node-timeout": 0.1, **changes})
    assert fragment in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "runs").exists()


def test_an_unwritable_run_directory_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    target = str(tmp_path / "file" / "runs")
    with pytest.raises(ConfigError) as caught:
        run_here(tmp_path, **{"run-dir": target})
    assert str(caught.value).startswith(f"run-dir = {target!r}: cannot write there (")


def test_a_run_that_fails_says_so_in_its_summary(tmp_path):
    everyone = dict.fromkeys(range(10), lambda reply: None)
    with pytest.raises(RunError):
        run_here(tmp_path, tamper=everyone, **{"round-timeout": 0.05, "num-server-rounds": 9})
    found = folder(tmp_path)
    summary = json.loads((found / "summary.json").read_text())
    assert summary["status"] == "failed"
    assert "no usable reply" in summary["reason"]
    assert len((found / "history.jsonl").read_text().splitlines()) == 4


def test_an_interrupted_run_keeps_what_it_had(tmp_path):
    calls = []

    def interrupt(reply):
        calls.append(reply)
        if len(calls) > 12:
            raise KeyboardInterrupt
        return reply

    with pytest.raises(KeyboardInterrupt):
        run_here(tmp_path, tamper=dict.fromkeys(range(10), interrupt))
    found = folder(tmp_path)
    summary = json.loads((found / "summary.json").read_text())
    assert (summary["status"], summary["reason"]) == ("failed", "interrupted")
    assert summary["rounds"] == 2
    assert not list(found.glob(".*"))


def test_the_app_logs_the_reason_and_passes_it_on(tmp_path, caplog):
    config = {**RunConfig().model_dump(by_alias=True), "batch-size": -1}
    context = Context(run_id=1, node_id=1, node_config={}, state=RecordDict(), run_config=config)
    with pytest.raises(ConfigError):
        server_app.app(LocalGrid(config, 1), context)
    assert "run failed: batch-size = -1" in caplog.text


def test_relative_run_directories_are_named_absolutely(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run_here(tmp_path, **{"run-dir": "here"})
    assert f"results: {Path.cwd() / 'here'}" in capsys.readouterr().out
