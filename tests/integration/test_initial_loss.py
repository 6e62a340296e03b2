"""Clients report the loss of the model that they received; q-FedAvg uses it, as its page has it."""

import sys

import numpy as np
import pytest

from fedavg_app.partitioning import partition
from fedavg_app.server.preparation import resolve
from tests.support.documents import ROOT, examples
from tests.support.in_process import (
    make_config,
    model_arrays,
    round_of_algorithm_1,
    told_by,
    train,
    training_loss,
)

pytestmark = pytest.mark.usefixtures("server_identity")


@pytest.fixture
def page(tmp_path, monkeypatch):
    """Put the examples of docs/writing-a-strategy.md on Python's path."""
    for name, text in examples(ROOT / "docs" / "writing-a-strategy.md").items():
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("qfedavg", None)


@pytest.mark.parametrize("q", [0.0, 1.0, 0.5])
def test_q_fedavg_takes_the_step_of_its_paper(page, q):
    """w - sum_k F_k^q L (w - w_k) / sum_k (q F_k^(q-1) |L (w - w_k)|^2 + L F_k^q), L = 1 / eta."""
    changes = {
        "strategy": "qfedavg:QFedAvg", "strategy_args": f"q = {q}", "initial_loss": True,
        "num_server_rounds": 1, "num_clients": 4, "fraction_train": 1.0, "partition": "shards",
    }  # fmt: skip
    config = make_config(**changes)
    _, result = train(**changes)
    parts = resolve(config)
    task, data = parts.task, parts.task.dataset(config.data_options)
    rows = partition(data, "train", config)
    told = {**told_by(config, task, data, ""), "learning-rate": 0.05, "server-round": 1}
    start = [array.numpy().astype(np.float64) for array in parts.model.sent.values()]
    changes_sum, h_sum = [np.zeros_like(array) for array in start], 0.0
    for k in range(4):
        splits = {k: data.train.part(rows[k])}
        weights = [array.astype(np.float32) for array in start]
        trained = round_of_algorithm_1(task, weights, splits, told)
        loss = training_loss(task, data, rows[k], parts.model.sent)
        change = [(w - w_k) / 0.05 for w, w_k in zip(start, trained, strict=True)]
        norm = sum(float(np.square(c).sum()) for c in change)
        changes_sum = [a + loss**q * c for a, c in zip(changes_sum, change, strict=True)]
        h_sum += q * loss ** (q - 1) * norm + loss**q / 0.05
    for array, w, change in zip(model_arrays(result), start, changes_sum, strict=True):
        np.testing.assert_allclose(array, w - change / h_sum, atol=1e-6)


def test_loss_is_that_of_the_model_before_training():
    changes = {"initial_loss": True, "num_server_rounds": 1, "num_clients": 4, "fraction_train": 1}
    config = make_config(**changes)
    _, result = train(**changes)
    parts = resolve(config)
    data = parts.task.dataset(config.data_options)
    rows = partition(data, "train", config)
    losses = [training_loss(parts.task, data, rows[k], parts.model.sent) for k in range(4)]
    sizes = [len(rows[k]) for k in range(4)]
    reported = result.history[-1].train_metrics["initial-loss"]
    assert reported == pytest.approx(np.average(losses, weights=sizes), rel=1e-5)


def test_strategy_that_needs_the_losses_says_so(page):
    with pytest.raises(Exception, match="QFedAvg: give initial-loss in train_config"):
        train(strategy="qfedavg:QFedAvg", num_server_rounds=1)
