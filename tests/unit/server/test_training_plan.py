from dataclasses import replace

import pytest

from fedavg_app.config import CentralConfig, RunConfig
from fedavg_app.server.training_plan import make_plan
from tasks.mnist import MNIST_2NN


def test_auto_learning_rate_is_the_tasks_for_the_strategy():
    task = replace(MNIST_2NN, learning_rate=0.1, learning_rates={"fedsgd": 0.4})
    rates = {
        values: make_plan(
            RunConfig(strategy=values[0], learning_rate=values[1]), task
        ).learning_rate
        for values in (("fedavg", "auto"), ("fedsgd", "auto"), ("fedsgd", 0.2))
    }
    assert list(rates.values()) == [0.1, 0.4, 0.2]
    assert hash(task) == hash(replace(task))  # as all of a task's other fields allow
    assert make_plan(CentralConfig(), task).learning_rate == 0.1


def test_learning_rate_decays_with_every_round():
    plan = make_plan(RunConfig(learning_rate=0.4, learning_rate_decay=0.5), MNIST_2NN)
    assert [plan.rate(server_round) for server_round in (1, 2, 3)] == [0.4, 0.2, 0.1]


@pytest.mark.parametrize(("given", "expected"), [("auto", 0.97), (0.5, 0.5), (0.0, None)], ids=str)
def test_target_is_the_tasks_unless_given_and_zero_means_none(given, expected):
    plan = make_plan(RunConfig(target_accuracy=given), MNIST_2NN)
    assert plan.target_accuracy == expected
    assert not plan.reached(None)
    assert not plan.reached(0.49)
    assert plan.reached(1.0) == (expected is not None)


def test_zero_round_timeout_means_none():
    assert make_plan(RunConfig(), MNIST_2NN).round_timeout is None
    assert make_plan(RunConfig(round_timeout=2.0), MNIST_2NN).round_timeout == 2.0
