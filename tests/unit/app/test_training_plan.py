from dataclasses import replace

import numpy as np
import pytest

from fedavg_app.config import CentralConfig, RunConfig
from fedavg_app.errors import ConfigError
from fedavg_app.training_plan import make_plan
from tasks.data.dataset import DataOptions
from tasks.mnist import MNIST_2NN
from tests.support.labels import labelled_dataset
from tests.support.training_runs import history


def test_auto_learning_rate_is_the_tasks_for_the_strategy():
    task = replace(MNIST_2NN, learning_rate=0.1, learning_rates={"fedsgd": 0.4})
    rates = {
        values: make_plan(
            RunConfig(strategy=values[0], learning_rate=values[1]), task
        ).learning_rate
        for values in (("fedavg", "auto"), ("fedsgd", "auto"), ("fedsgd", 0.2))
    }
    assert list(rates.values()) == [0.1, 0.4, 0.2]
    assert make_plan(CentralConfig(), task).learning_rate == 0.1


@pytest.mark.parametrize(
    ("optimizer", "expected"), [("auto", 0.02), ("adamw", 0.02), ("sgd", 0.5), ("rmsprop", 0.01)]
)
def test_auto_learning_rate_is_the_tasks_for_the_optimiser_or_its_own(optimizer, expected):
    task = replace(MNIST_2NN, optimizer="adamw", learning_rate=0.02, learning_rates={"sgd": 0.5})
    assert make_plan(RunConfig(optimizer=optimizer), task).learning_rate == expected


@pytest.mark.parametrize(
    ("given", "expected"), [("auto", 0.97), (0.5, 0.5), ("none", None)], ids=str
)
def test_target_is_the_tasks_unless_given(given, expected):
    plan = make_plan(RunConfig(target=given), MNIST_2NN)
    assert plan.target == expected
    assert not plan.ends_after(history([0.1, None]))
    assert not plan.ends_after(history([0.1, 0.49]))
    assert plan.ends_after(history([0.1, 1.0])) == (expected is not None)
    assert not plan.ends_after(history([1.0]))  # the initial model does not count


def test_target_of_another_objective_is_reached_from_above():
    task = replace(MNIST_2NN, metrics={}, target=0.5)
    plan = make_plan(RunConfig(), task)
    assert (str(plan.objective), plan.target) == ("min loss", 0.5)
    rounds = history([0.1, 0.4, 0.6])  # whose losses are 0.9, 0.6 and 0.4
    assert [plan.ends_after(rounds[:number]) for number in (2, 3)] == [False, True]
    assert make_plan(RunConfig(target="none"), task).target is None
    assert make_plan(RunConfig(target=0.7), task).target == 0.7
    assert make_plan(RunConfig(objective="loss"), MNIST_2NN).target is None
    assert make_plan(RunConfig(target=97), task).target == 97


def test_target_that_no_accuracy_reaches_is_refused():
    with pytest.raises(ConfigError, match=r"target = 97\.0: accuracies are shares: give at most 1"):
        make_plan(RunConfig(target=97), MNIST_2NN)


def test_objective_that_the_task_lacks_is_refused():
    error = "objective = 'f1': is 'f1', which is no metric; there are: loss"
    with pytest.raises(ConfigError, match=error):
        make_plan(RunConfig(objective="f1"), replace(MNIST_2NN, metrics={}))


@pytest.mark.parametrize(
    ("accuracies", "ends"),
    [
        ([0.5, 0.4, 0.4], False),  # two rounds
        ([0.5, 0.4, 0.4, 0.5], True),  # an equal accuracy is no improvement
        ([0.5, 0.4, 0.6, 0.5, 0.5], False),
        ([0.5, 0.4, 0.6, 0.5, 0.5, 0.4], True),
        ([0.5, 0.4, None, None, None], False),  # the last round was not tested
        ([0.5, None, None, None, None, 0.6], False),
        ([0.5, None, None, None, None, 0.4], True),
    ],
)
def test_training_ends_after_patience_rounds_without_a_better_accuracy(accuracies, ends):
    config = RunConfig(target="none", patience=3)
    assert make_plan(config, MNIST_2NN).ends_after(history(accuracies)) == ends
    without = make_plan(RunConfig(target="none"), MNIST_2NN)
    assert not without.ends_after(history(accuracies))


@pytest.mark.parametrize(
    ("given", "source", "expected"),
    [("auto", "embedded", 0.93), ("auto", "mirror", 0.97), (0.95, "embedded", 0.95)],
)
def test_auto_target_is_within_reach_of_the_data(given, source, expected):
    config = RunConfig(target=given)
    data = replace(labelled_dataset(np.arange(60) % 3), options=DataOptions(source))
    plan = make_plan(config, MNIST_2NN, data)
    assert plan.target == expected
    own = replace(MNIST_2NN, embedded_target=None)  # a task that has one kind of data
    assert make_plan(config, own, data).target in (0.97, 0.95)
