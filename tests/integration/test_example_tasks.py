"""The example tasks of the documents: under several strategies, resumed, and their metrics."""

import importlib
import sys
from itertools import product

import pytest
import torch
from sklearn.metrics import f1_score, jaccard_score, mean_absolute_error, r2_score

from fedavg_app.config import RunConfig
from fedavg_app.errors import ConfigError
from fedavg_app.server.preparation import prepare
from fedavg_app.server_app import run
from tasks.checking.all_checks import before_training
from tasks.data.dataset import DataOptions
from tests.integration.test_resumed_runs import PowerLossError, StatefulGrid
from tests.support.example_tasks import (
    NAMES,
    OWN_LOOP,
    STRATEGIES,
    TRAINED,
    WITH_ADAMW,
    keys_for,
    write,
)
from tests.support.in_process import network_with
from tests.support.run_folders import assert_model, only_folder, read_history, read_summary


@pytest.fixture
def module(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(write(tmp_path)))
    for name in NAMES:
        monkeypatch.delitem(sys.modules, f"{name}_task", raising=False)
    return lambda name: importlib.import_module(f"{name}_task")


@pytest.mark.parametrize("name", [name for name in NAMES if name != "lora"])  # see test_lora
def test_nothing_is_warned_of_before_a_training(name, module):
    task = module(name).TASK
    found = list(before_training(task, task.dataset(DataOptions()), 1))
    assert {finding.kind for finding in found} <= {"ok", "note"}, found


def start(folder, name, last_round=None, **changes):
    keys = {
        "task": f"{name}_task:TASK", "num_clients": 5, "fraction_train": 1.0, "batch_size": 20,
        "num_server_rounds": 4, "run_dir": str(folder), "device": "cpu",
        **({"local_epochs": 2} if name in OWN_LOOP else {"local_steps": 10}),
    }  # fmt: skip
    config = RunConfig(**keys | changes)
    return run(StatefulGrid(config, last_round), prepare(config))


def learning_cases():
    """Each task under FedAvg and STC; a language model and an app's network are slow.

    The others get the same vectors from a client, but by its optimiser, and from a loop of its own.
    """
    others = [*product(("wine", "labels"), STRATEGIES[2:]), ("gan", "scaffold")]
    return [
        pytest.param(*case, marks=pytest.mark.slow if case[0] in ("lora", "quickstart") else ())
        for case in (*product(NAMES, ("fedavg", "stc")), *others)
    ]


@pytest.mark.parametrize(("name", "strategy"), learning_cases())
def test_task_learns_under_the_strategy(name, strategy, module, tmp_path):
    module(name)
    if name in OWN_LOOP and strategy == "scaffold":
        with pytest.raises(ConfigError, match="the task has its own training loop"):
            start(tmp_path / "runs", name, strategy=strategy)
        return
    keys = keys_for(strategy, name)
    if strategy == "stc" and name in WITH_ADAMW:
        keys["num_server_rounds"] = 12
    result = start(tmp_path / "runs", name, fraction_evaluate=1.0, **keys)
    summary = read_summary(result.folder)
    objective = summary["objective"].split()[1]
    first, best = result.history[0].tested[objective], summary[f"best-{objective}"]
    assert best < first if summary["objective"].startswith("min") else best > first
    assert summary["rejected-replies"] == 0
    assert len(result.history[-1].client_values[objective]) == 5


QUICK = [("labels", "fedavg"), ("labels", "stc")]  # the others keep no state of their own


@pytest.mark.parametrize(
    ("name", "strategy"),
    [pytest.param(*case, marks=() if case in QUICK else pytest.mark.long) for case in TRAINED],
)
def test_resumed_run_ends_in_the_same_bits(name, strategy, module, tmp_path):
    module(name)
    keys = {**keys_for(strategy, name), "checkpoint_every": 2}
    keys |= {"local_epochs": 1} if name in OWN_LOOP else {"local_steps": 4}
    if name in WITH_ADAMW and strategy != "scaffold":  # which trains by SGD
        keys["optimizer_state"] = "kept"
    start(tmp_path / "whole", name, **keys)
    with pytest.raises(PowerLossError):
        start(tmp_path / "cut", name, 3, **keys)
    whole, cut = (only_folder(tmp_path / part) for part in ("whole", "cut"))
    start(tmp_path / "cut", name, resume=str(cut), **keys)
    assert_model(cut, whole)
    tested = [[line["test_metrics"] for line in read_history(folder)] for folder in (whole, cut)]
    assert tested[0] == tested[1]


def outputs_of(task, result):
    """Return the final model's outputs for the whole test set at once, and the targets."""
    data = task.dataset(RunConfig().data_options)
    every = task.examples(data.test, torch.device("cpu"))
    inputs, targets = every.slice(0, len(every))
    with torch.no_grad():
        return network_with(task, result.model)(inputs), targets


def macro(score, targets, predicted):
    return score(targets.flatten(), predicted.flatten(), average="macro")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("wine", {"f1": lambda o, t: macro(f1_score, t, o.argmax(1))}),
        ("regression", {"mae": lambda o, t: mean_absolute_error(t, o)}),
        ("regression", {"r2": lambda o, t: r2_score(t, o)}),
        ("labels", {"f1": lambda o, t: f1_score(t, o > 0, average="macro")}),
        ("segments", {"miou": lambda o, t: macro(jaccard_score, t, o.argmax(1))}),
        ("gan", {"distance": lambda o, _: (o[0].norm(dim=1) - 1).abs().mean()}),
    ],
)  # fmt: skip
def test_metrics_are_scikit_learns_on_the_whole_test_set(name, expected, module, tmp_path):
    task = module(name).TASK
    result = start(tmp_path / "runs", name, num_server_rounds=1)
    outputs, targets = outputs_of(task, result)
    for metric, function in expected.items():
        found = result.history[-1].test_metrics[metric]
        assert found == pytest.approx(float(function(outputs, targets)), abs=1e-6)
