"""Runs with a share of the training examples set aside: what is trained on, and what chooses."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

import tasks
from fedavg_app.callbacks.base import Callback
from fedavg_app.central_sgd import train_centrally
from fedavg_app.client_settings import PARTITION_ID
from fedavg_app.config import CentralConfig
from fedavg_app.errors import ConfigError, RunError
from fedavg_app.partitioning import partition
from tasks.data.dataset import Dataset
from tests.support.in_process import make_config, run_here, same_model
from tests.support.local_grid import LocalGrid
from tests.support.one_line import one_line

DATA = tasks.load("mnist-logistic").dataset
# The best round by validation is not the best on the test set.
CHANGES = {
    "validation": 0.1, "num-server-rounds": 7, "learning-rate": 0.5, "local-steps": 3,
    "target": "none",
}  # fmt: skip


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """Return a run's config, result and models, round 0 first, and what its clients sent."""
    config, models, sent = (
        make_config(**CHANGES, run_dir=str(tmp_path_factory.mktemp("run"))),
        [],
        {},
    )

    class Keep(Callback):
        def on_round_end(self, metrics, model):
            models.append({name: array.numpy().copy() for name, array in model.items()})

    def keep(client):
        def count(reply):
            sent[client] = reply.content["metrics"]["num-examples"]
            return reply

        return count

    tamper = {client: keep(client) for client in range(config.num_clients)}
    return config, run_here(config, tamper=tamper, callbacks=[lambda _: Keep()]), models, sent


def accuracy(task, model, split):
    network = task.model()
    network.load_state_dict({name: torch.from_numpy(array) for name, array in model.items()})
    with torch.no_grad():
        logits = network.eval()(task.prepare(torch.from_numpy(split.inputs)))
    return float((logits.argmax(dim=1).numpy() == split.targets).mean())


def test_global_model_is_evaluated_on_the_examples_set_aside_of_all_clients(ended):
    config, result, models, sent = ended
    task = tasks.load(config.task)
    data = task.dataset(config.data_options)
    kept, aside = (partition(data, split, config) for split in ("train", "validation"))
    pool = data.train.part(aside.examples)
    assert len(pool) == pytest.approx(0.1 * len(data.train), rel=0.01)
    for metrics, model in zip(result.history, models, strict=True):
        found = metrics.validation_metrics
        assert found["accuracy"] == pytest.approx(accuracy(task, model, pool), abs=1e-6)
        assert metrics.accuracy == pytest.approx(accuracy(task, model, data.test), abs=1e-6)
        assert found.keys() == {"accuracy", "loss"}
    assert sent
    assert sent == {client: len(kept[client]) for client in sent}


def test_best_model_and_summary_are_those_of_the_round_that_validation_chose(ended):
    _, result, models, _ = ended
    validated = [metrics.validation_metrics["accuracy"] for metrics in result.history]
    tested = [metrics.accuracy for metrics in result.history]
    best = int(np.argmax(validated))
    assert best != int(np.argmax(tested))
    saved = load_file(result.folder / "best.safetensors")
    assert all(np.array_equal(saved[name], array) for name, array in models[best].items())
    summary = json.loads((result.folder / "summary.json").read_text())
    assert summary["chosen-on"] == "validation"
    assert summary["best-round"] == best
    assert summary["best-accuracy"] == tested[best]
    assert summary["final-accuracy"] == tested[-1]
    assert summary["validation-metrics"] == result.history[best].validation_metrics


def test_target_and_patience_go_by_the_validation_value(ended, tmp_path):
    _, result, _, _ = ended
    validated = [metrics.validation_metrics["accuracy"] for metrics in result.history]
    tested = [metrics.accuracy for metrics in result.history]
    target = max(validated)
    reached = [next(n for n, v in enumerate(of) if v >= target) for of in (validated, tested)]
    assert reached[0] != reached[1]
    changed = {**CHANGES, "run-dir": str(tmp_path)}
    stopped = run_here(make_config(**{**changed, "target": target}))
    assert stopped.history[-1].round == reached[0]
    assert reached[0] - 1 < stopped.rounds_to_target <= reached[0]
    best, rounds = 0, len(validated)
    for number, value in enumerate(validated):
        best = number if value > validated[best] else best
        if number - best >= 2:
            rounds = number + 1
            break
    assert len(run_here(make_config(**changed, patience=2)).history) == rounds


def test_without_the_key_nothing_is_set_aside(tmp_path):
    result = run_here(make_config(run_dir=str(tmp_path)))
    assert not any(metrics.validation_metrics for metrics in result.history)
    summary = json.loads((result.folder / "summary.json").read_text())
    assert summary["chosen-on"] == "test"
    assert summary["best-accuracy"] == max(metrics.accuracy for metrics in result.history)
    assert "validation-metrics" not in summary


class OwnData(LocalGrid):
    """Client 3's node says that it has data of its own."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        node = self.contexts[self.node(3)]
        node.node_config = {**node.node_config, "data-dir": "somewhere"}


def test_nodes_with_data_of_their_own_are_refused(tmp_path, monkeypatch):
    data = tasks.load("mnist-logistic").dataset(make_config().data_options)
    monkeypatch.setattr("fedavg_app.client.client_process.own_dataset", lambda *_: data)
    config = make_config(**CHANGES, run_dir=str(tmp_path))
    assert PARTITION_ID in OwnData(config.model_dump(by_alias=True), 20).contexts[1000].node_config
    with one_line((ConfigError, RunError), "validation = 0.1: it has data of its own"):
        run_here(config, grid_type=OwnData)


def own_validation_set(options):
    """Return a data set whose second half of the test set is for validation."""
    data, half = DATA(options), 500
    parts = [data.test.part(rows) for rows in (slice(half), slice(half, None))]
    return Dataset.of(data.train, parts[0], options, "with validation examples", parts[1])


OWN_SPLIT = replace(tasks.load("mnist-logistic"), dataset=own_validation_set)
OWN = {"task": f"{__name__}:OWN_SPLIT", "target": "none"}


def test_validation_examples_of_the_task_need_no_key(tmp_path):
    config = make_config(**OWN, run_dir=str(tmp_path))
    result = run_here(config)
    data = own_validation_set(config.data_options)
    last = {name: array.numpy() for name, array in result.model.items()}
    for found, split in (
        (result.history[-1].validation_metrics["accuracy"], data.validation),
        (result.history[-1].accuracy, data.test),
    ):
        assert found == pytest.approx(accuracy(OWN_SPLIT, last, split), abs=1e-6)
    summary = json.loads((result.folder / "summary.json").read_text())
    assert summary["chosen-on"] == "validation"
    # Nothing else changes: the training examples are all in use.
    plain = run_here(make_config(target="none", run_dir=str(tmp_path)))
    assert same_model(result, plain)


def test_central_training_goes_by_the_validation_examples_of_its_task(tmp_path):
    keys = {"task": OWN["task"], "data_source": "embedded", "run_dir": str(tmp_path)}
    config = CentralConfig(**keys, num_server_rounds=20, evaluate_every=10)
    result = train_centrally(config, OWN_SPLIT)
    assert all(metrics.validation_metrics for metrics in result.history)
    summary = json.loads((result.folder / "summary.json").read_text())
    assert summary["chosen-on"] == "validation"


def test_share_beside_the_validation_examples_of_the_task_is_refused(tmp_path):
    config = make_config(**OWN, validation=0.1, run_dir=str(tmp_path))
    with one_line(ConfigError, "validation = 0.1: leave it out: ", "has validation examples of"):
        run_here(config)


def test_data_sets_with_other_validation_examples_are_told_apart():
    data = own_validation_set(make_config().data_options)
    other = replace(data, validation=data.validation.part(slice(100, None)))
    assert data.digest() != other.digest() != replace(data, validation=None).digest()
