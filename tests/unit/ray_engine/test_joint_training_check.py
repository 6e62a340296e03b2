"""Runs whose clients cannot be trained together are refused before they start."""

import dataclasses
import sys

import pytest
from flwr.app import Context, RecordDict
from torch import nn

from fedavg_app import server_app
from fedavg_app.config import RunConfig, parse_config, with_clients
from fedavg_app.errors import ConfigError
from fedavg_app.ray_engine.joint_training_check import check_joint_training
from fedavg_app.server.preparation import prepare
from tasks.mnist import MNIST_LOGISTIC

DROPOUT = dataclasses.replace(
    MNIST_LOGISTIC,
    name="with-dropout",
    model=lambda: nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(784, 10)),
)


def check(**changes):
    values = {"task": "mnist-logistic", "data-source": "embedded", "clients-per-batch": 10}
    config = parse_config({**values, **changes})
    check_joint_training(prepare(with_clients(config)))


@pytest.mark.parametrize("strategy", ["fedavg", "stc"])
def test_supported_task_and_strategy_are_accepted(strategy):
    check(strategy=strategy)


@pytest.mark.parametrize(
    ("changes", "fragment"),
    [
        ({"strategy": "fedsgd"}, "clients of fedsgd take no steps of SGD"),
        ({"task": f"{__name__}:DROPOUT"}, "with-dropout cannot be trained for several clients"),
        (
            {"task": "shakespeare-lstm", "partition": "natural"},
            "shakespeare-lstm cannot be trained for several clients",
        ),
    ],
)
def test_others_are_refused_in_one_line_with_key_value_and_fix(changes, fragment):
    with pytest.raises(ConfigError) as raised:
        check(**changes)
    line = str(raised.value)
    assert line.startswith("clients-per-batch = 10: ")
    assert fragment in line
    assert line.endswith("; give 1")
    assert len(line.splitlines()) == 1


def test_flower_engines_refuse_it(monkeypatch):
    """`flwr run` and deployments enter by the ServerApp's main function."""
    monkeypatch.setattr(sys, "tracebacklimit", 1000, raising=False)  # undoes what the app sets
    values = RunConfig(**{"clients-per-batch": 2}).model_dump(by_alias=True)
    context = Context(1, 1, {}, RecordDict(), values)
    with pytest.raises(ConfigError, match=r"clients-per-batch = 2: only simulation\.py .* give 1"):
        server_app.main(None, context)
