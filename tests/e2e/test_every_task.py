"""Every task and every strategy trains on both engines, to the same bits."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from safetensors.numpy import load_file

import strategies
import tasks
from fedavg_app.config import RunConfig
from tests.support import data_slices
from tests.support.documents import ROOT

COMBINATIONS = [
    *((task, "fedavg") for task in tasks.names()),
    *(("mnist-logistic", name) for name in strategies.names() if name != "fedavg"),
]
# Processes per engine. A grid's worker starts anew for each config on RayGrid, which is most of the
# time; Flower's simulation starts once.
PROCESSES = {"flower": 1, "ray": 2}

pytestmark = pytest.mark.slow


def make_config(task, strategy, data, runs):
    """Return two rounds of two of four clients, with momentum and evaluation on clients."""
    return RunConfig(
        task=task, strategy=strategy, data_dir=str(data), run_dir=str(runs), num_clients=4,
        fraction_train=0.5, num_server_rounds=2, local_steps=2, batch_size=4, evaluate_every=2,
        target_accuracy=0.0, learning_rate=0.01, momentum=0.5, fraction_evaluate=0.5,
        partition="natural" if task.startswith("shakespeare") else "iid", device="cpu", seed=3,
    ).model_dump(by_alias=True)  # fmt: skip


def start(engine, folder, configs):
    """Start what runs the configs on an engine; the results are files in the folder."""
    started = []
    for part in range(PROCESSES[engine]):
        path = folder / f"configs-{part}.json"
        path.write_text(json.dumps(dict(list(configs.items())[part :: PROCESSES[engine]])))
        started.append(
            subprocess.Popen(
                [sys.executable, "-m", "tests.support.engine_runner", engine, path, folder],
                cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, text=True,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            )
        )  # fmt: skip
    return started


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """By engine, the folder with the results of all combinations."""
    data = tmp_path_factory.mktemp("data")
    folders = {}
    for engine in PROCESSES:
        folder = folders[engine] = tmp_path_factory.mktemp(engine)
        configs = {
            f"{task}-{strategy}": make_config(
                task, strategy, data_slices.write(task, data / task), folder / "runs"
            )
            for task, strategy in COMBINATIONS
        }
        for process in start(engine, folder, configs):
            output, _ = process.communicate(timeout=580)
            assert process.returncode == 0, output[-3000:]
    return folders


@pytest.mark.parametrize(("task", "strategy"), COMBINATIONS)
def test_two_rounds_end_in_the_same_model_on_both_engines(results, task, strategy):
    name = f"{task}-{strategy}"
    models, histories = {}, {}
    for engine, folder in results.items():
        models[engine] = load_file(folder / f"{name}.safetensors")
        histories[engine] = json.loads((folder / f"{name}.json").read_text())
    model, records = models["ray"], histories["ray"]
    assert [record["round"] for record in records] == [0, 1, 2]
    for record in records[1:]:
        assert record["participants"] == 2
        assert record["rejected"] == {}
        assert np.isfinite(record["train_loss"])
    assert 0 <= records[-1]["accuracy"] <= 1
    assert records[-1]["client_metrics"].keys() == {
        "loss", "accuracy", "accuracy-mean", "accuracy-p10"
    }  # fmt: skip
    initial = tasks.load(task).initial_model(3).state_dict()
    assert model.keys() == initial.keys()
    assert any(not np.array_equal(model[key], initial[key].numpy()) for key in model)

    assert models["flower"].keys() == model.keys()
    for key, array in models["flower"].items():
        assert np.array_equal(model[key], array), key
    # The server's process evaluates on several threads under Flower, a worker on one.
    ours, theirs = (
        [record["test_loss"] for record in histories[engine] if record["round"] != 1]
        for engine in ("ray", "flower")
    )
    assert ours == pytest.approx(theirs, rel=1e-6)
    varying = {"seconds": 0, "test_loss": 0}
    for ours, theirs in zip(records, histories["flower"], strict=True):
        assert {**ours, **varying} == {**theirs, **varying}
