"""Which optimisers clients are told to use, and what is refused before a run."""

from dataclasses import replace

import pytest
import torch

import tasks
from fedavg_app.config import RunConfig
from fedavg_app.errors import ConfigError
from fedavg_app.optimizer_choice import resolve_work
from fedavg_app.server.preparation import resolve
from tasks.mnist import MNIST_LOGISTIC
from tests.support.one_line import one_line

# What messages say of the defaults.
TOLD = {"local-epochs": 1, "local-steps": 0, "batch-size": 10, "momentum": 0.0, "seed": 1}
ADAMW = replace(MNIST_LOGISTIC, optimizer="adamw", optimizer_args={"weight_decay": 0.1})


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({}, {"optimizer": "adamw", "optimizer-args": "weight_decay = 0.1"}),
        (
            {"optimizer_args": "eps = 1e-6"},
            {"optimizer": "adamw", "optimizer-args": "weight_decay = 0.1, eps = 1e-06"},
        ),
        ({"optimizer": "RMSprop"}, {"optimizer": "rmsprop"}),
        ({"optimizer": "torch.optim:Adam"}, {"optimizer": "torch.optim:Adam"}),
        ({"optimizer": "sgd", "momentum": 0.9}, {"momentum": 0.9}),
    ],
)
def test_config_replaces_the_tasks_optimiser_and_adds_to_its_arguments(keys, told):
    assert resolve_work(RunConfig(**keys), ADAMW).message() == TOLD | told


@pytest.mark.parametrize(
    ("keys", "error"),
    [
        ({"optimizer": "adamx"}, "optimizer = 'adamx': known optimisers: "),
        ({"optimizer": "adam", "optimizer_args": "beta = 1"}, "optimizer-args = 'beta = 1': adam"),
        ({"optimizer": "adam", "momentum": 0.9}, "momentum = 0.9: it is of SGD; with adam give it"),
        ({"optimizer": "adam", "weight_decay": 0.1}, "weight-decay = 0.1: it is of SGD; with adam"),
        ({"optimizer_args": "eps = 1.0"}, "optimizer-args = 'eps = 1.0': SGD has none; give"),
        ({"optimizer_state": "kept"}, "optimizer-state = 'kept': SGD keeps its momentum anyway"),
        ({"optimizer": "adam", "strategy": "scaffold"}, "optimizer = 'adam': give sgd: scaffold"),
        ({"rate_schedule": "cosine", "strategy": "fednova"}, "rate-schedule = 'cosine': leave it"),
        pytest.param(
            {"optimizer": "muon"},
            "optimizer = 'muon': it refuses the model's weights: Muon only",
            marks=pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="torch before 2.9"),
        ),
        ({"optimizer": "adam", "strategy": "fedsgd"}, "optimizer = 'adam': leave it out: the clie"),
    ],
)
def test_invalid_optimiser_settings_are_refused_in_one_line(keys, error):
    config = RunConfig(task="mnist-logistic", num_clients=4, **keys)
    with one_line(ConfigError, error):
        resolve(config)


def test_tasks_of_the_papers_train_by_sgd_and_tell_clients_nothing_more():
    for name in tasks.names():
        assert resolve_work(RunConfig(), tasks.load(name)).message() == TOLD
