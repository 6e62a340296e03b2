"""Every task trains under every strategy on both engines, to the same bits."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

import strategies
import tasks
from fedavg_app.config import RunConfig
from tests import slices

ROOT = Path(__file__).parents[2]
COMBINATIONS = [(task, name) for task in tasks.known() for name in strategies.known()]

pytestmark = pytest.mark.slow


def config(task, strategy, data, runs):
    """Two rounds of two of four clients, with momentum and an evaluation on clients."""
    return RunConfig(
        task=task, strategy=strategy, data_dir=str(data), run_dir=str(runs), num_clients=4,
        fraction_train=0.5, num_server_rounds=2, local_steps=2, batch_size=4, evaluate_every=2,
        target_accuracy=0.0, learning_rate=0.01, momentum=0.5, fraction_evaluate=0.5,
        partition="natural" if task.startswith("shakespeare") else "iid", device="cpu", seed=3,
    ).model_dump(by_alias=True)  # fmt: skip


@pytest.fixture(scope="module", params=["ray", "stock"])
def engine(request, tmp_path_factory):
    """The folder with what every combination gave on one engine."""
    folder = tmp_path_factory.mktemp(request.param)
    configs = {
        f"{task}-{strategy}": config(
            task, strategy, slices.write(task, folder / "data" / task), folder / "runs"
        )
        for task, strategy in COMBINATIONS
    }
    # RayGrid's workers start anew for each: two processes of one worker take half the time of one.
    parts = 2 if request.param == "ray" else 1
    running = []
    for part in range(parts):
        own = dict(list(configs.items())[part::parts])
        path = folder / f"configs-{part}.json"
        path.write_text(json.dumps(own))
        running.append(
            subprocess.Popen(
                [sys.executable, "-m", "tests.e2e.every_task", request.param, path, folder],
                cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, text=True,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            )
        )  # fmt: skip
    for process in running:
        output, _ = process.communicate(timeout=580)
        assert process.returncode == 0, output[-3000:]
    return folder


@pytest.mark.parametrize(("task", "strategy"), COMBINATIONS)
def test_two_rounds(engine, task, strategy):
    records = json.loads((engine / f"{task}-{strategy}.json").read_text())
    assert [record["round"] for record in records] == [0, 1, 2]
    for record in records[1:]:
        assert record["participants"] == 2
        assert record["rejected"] == {}
        assert np.isfinite(record["train_loss"])
    assert 0 <= records[-1]["accuracy"] <= 1
    assert records[-1]["client_metrics"].keys() == {
        "loss", "accuracy", "accuracy-mean", "accuracy-p10"
    }  # fmt: skip
    model = load_file(engine / f"{task}-{strategy}.safetensors")
    initial = tasks.load(task).initial_model(3).state_dict()
    assert model.keys() == initial.keys()
    assert any(not np.array_equal(model[name], initial[name].numpy()) for name in model)
    MODELS.setdefault((task, strategy), model)
    for name, array in MODELS[task, strategy].items():  # the other engine's, where it came first
        assert np.array_equal(model[name], array), name


# The first engine's models.
MODELS = {}
