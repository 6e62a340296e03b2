"""Users' networks are trained as by plain torch, whichever client trained before."""

import dataclasses
import random
import re

import numpy as np
import pytest
import torch

from fedavg_app.client.client_process import _client_process
from fedavg_app.config import RunConfig
from fedavg_app.errors import ConfigError, NoRepliesError
from fedavg_app.partitioning import partition
from fedavg_app.server.preparation import prepare, resolve
from strategies.rounds.flower_arrays import from_record
from tasks.base import Task
from tests.support import networks
from tests.support.in_process import model_arrays, run_here, same_model

MODULE = "tests.support.networks:"
SETTINGS = {
    "data-source": "embedded", "num-clients": 4, "fraction-train": 1.0, "num-server-rounds": 2,
    "batch-size": 0, "target": "none", "learning-rate": 0.2, "device": "cpu",
}  # fmt: skip
# Each would differ from torch where batches were cut, or clients shared what they keep.
TRAINED = ["TIED_DATA", "OWN_NORM", "SYNC_NORM", "WEIGHTED", "MOVING", "LAZY", "STATEFUL"]
KEPT = ["MOVING", "LAZY", "STATEFUL", "TORCH_NOISE", "NUMPY_NOISE", "PYTHON_NOISE"]


def config_of(name, folder, **changes):
    keys = {key.replace("_", "-"): value for key, value in changes.items()}
    return RunConfig(**{**SETTINGS, "task": MODULE + name, "run-dir": str(folder), **keys})


def by_torch(task: Task, config: RunConfig) -> dict[str, np.ndarray]:
    """Return the model of FedAvg with one step a round, each client with a network of its own."""
    data = task.dataset(config.data_options)
    given, rows = (data.train.inputs, data.train.targets), partition(data, "train", config)
    model = {name: x.clone() for name, x in task.initial_model(config.seed).state_dict().items()}
    for _ in range(config.num_server_rounds):
        total = {name: torch.zeros_like(x, dtype=torch.float64) for name, x in model.items()}
        for own in rows:
            network = task.initial_model(config.seed)
            network.load_state_dict(model)
            optimizer = torch.optim.SGD(network.parameters(), float(config.learning_rate))
            inputs, targets = (torch.from_numpy(x[own]) for x in given)
            task.loss(network.train()(task.prepare(inputs)), targets).backward()
            optimizer.step()
            for name, value in model.items():
                total[name] += network.state_dict()[name].double() * len(own)
                assert value.shape == network.state_dict()[name].shape
        model = {name: (x / sum(map(len, rows))).to(model[name].dtype) for name, x in total.items()}
    return {name: x.numpy() for name, x in model.items()}


@pytest.mark.parametrize("strategy", ["fedavg", "fedsgd"])
@pytest.mark.parametrize("name", TRAINED)
def test_training_is_that_of_torch(tmp_path, name, strategy):
    task, config = getattr(networks, name), config_of(name, tmp_path, strategy=strategy)
    prepared = prepare(config)
    model = from_record(prepared.model.complete(run_here(config).model))
    expected = by_torch(task, config)
    assert set(model) == set(expected) - {"mean"}  # which the first pass of LAZY makes
    initial = task.initial_model(config.seed).state_dict()
    for key, array in model.items():
        if strategy == "fedsgd" and key not in prepared.model.arrays.trained:
            continue  # running statistics follow what is trained
        change = np.linalg.norm(expected[key] - initial[key].numpy())
        error = np.linalg.norm(array.astype(np.float64) - expected[key])
        assert error <= 1e-4 * change + 1e-6, key


@pytest.mark.parametrize("name", KEPT)
def test_a_run_is_the_same_after_another_run_in_the_same_process(tmp_path, name):
    """The first run's clients have changed what the network keeps, the second starts from
    scratch."""
    config = config_of(name, tmp_path, batch_size=20, fraction_evaluate=1.0)
    _client_process.cache_clear()
    first = run_here(config)
    random.seed(5)
    np.random.seed(6)  # noqa: NPY002
    torch.manual_seed(7)
    again = run_here(config)
    assert same_model(first, again)
    for a, b in zip(first.history, again.history, strict=True):
        assert (a.test_loss, a.client_metrics) == (b.test_loss, b.client_metrics)


@pytest.mark.parametrize(
    ("name", "array", "change"),
    [
        ("THAWING", "body.weight", "is trained now"),
        ("FREEZING", "body.weight", "is no longer trained"),
    ],
)
def test_weights_that_are_trained_from_some_step_on_are_refused(tmp_path, name, array, change):
    config = config_of(name, tmp_path, batch_size=10)
    with pytest.raises(NoRepliesError, match=f"array '{array}' {change}"):
        run_here(config)


def test_weights_of_which_one_is_frozen_cannot_be_one_array(monkeypatch):
    def made():
        model = networks.Tied(by_data=True)
        model.outer.weight.data = model.inner.weight.data
        model.outer.weight.requires_grad_(requires_grad=False)
        return model

    monkeypatch.setattr(networks, "TIED_DATA", dataclasses.replace(networks.TIED_DATA, model=made))
    text = "arrays 'inner.weight' and 'outer.weight' are one, but only one is trained"
    with pytest.raises(ConfigError, match=re.escape(f"task = '{MODULE}TIED_DATA': {text}")):
        resolve(RunConfig(task=f"{MODULE}TIED_DATA", num_clients=4))


@pytest.mark.parametrize("name", [pytest.param("COMPILED", marks=pytest.mark.slow), "PARALLEL"])
def test_wrappers_leave_no_prefix_in_the_names_of_arrays(tmp_path, name):
    config = config_of(name, tmp_path)
    result, plain = run_here(config), run_here(config_of("MLP", tmp_path))
    assert list(result.model) == list(networks.mlp().state_dict())
    for ours, theirs in zip(model_arrays(result), model_arrays(plain), strict=True):
        np.testing.assert_allclose(
            ours, theirs, atol=1e-6
        )  # the plain network takes the dense step
