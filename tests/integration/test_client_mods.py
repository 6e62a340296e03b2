"""Runs with the mods of "client-mods" on their clients."""

from pathlib import Path

import numpy as np
import pytest
from flwr.app import ArrayRecord
from flwr.serverapp.strategy import DifferentialPrivacyClientSideFixedClipping
from flwr.serverapp.strategy import FedAvg as FlowersFedAvg

import tasks
from fedavg_app.errors import NoRepliesError
from tests.support import client_mods
from tests.support.client_mods import CLIPPING_NORM, FLOWERS, HERE, calls
from tests.support.in_process import model_arrays, same_model, train

MODEL = ArrayRecord(tasks.load("mnist-logistic").initial_model(1).state_dict())


class PrivateFedAvg(DifferentialPrivacyClientSideFixedClipping):
    """Flower's server side of `fixedclipping_mod`, without noise."""

    def __init__(self, **keywords):
        super().__init__(FlowersFedAvg(**keywords), 0.0, CLIPPING_NORM, num_sampled_clients=5)


@pytest.fixture(autouse=True)
def _no_calls():
    calls.clear()


def distance(result):
    """Return the L2 norm of what the run changed the model by."""
    pairs = zip(MODEL.values(), model_arrays(result), strict=True)
    return np.sqrt(sum(np.sum((after - before.numpy()) ** 2.0) for before, after in pairs))


def test_mods_run_inside_the_strategys_mod_and_see_plain_records():
    """Whatever the strategy does to the records, for training and for evaluation."""
    train(
        strategy="tests.support.packing_strategy:PackingFedAvg",
        client_mods=f"{HERE}:outer,{HERE}:inner",
        num_server_rounds=1,
        num_clients=2,
        fraction_train=0.0,
        fraction_evaluate=0.5,
    )
    assert calls == [
        *("strategy", "outer", ("train", "arrays", "config"), ("metrics", "arrays")),
        *("strategy", "outer", ("evaluate", "arrays", "config"), ("metrics",)),
    ]


def test_mods_run_around_the_gradient_handler_too():
    train(strategy="fedsgd", client_mods=f"{HERE}:inner", num_server_rounds=1, fraction_train=0.0)
    assert calls == [("train.gradient", "arrays", "config"), ("metrics", "arrays")]


@pytest.mark.parametrize("strategy", ["fedavg", "fedsgd", "flwr.serverapp.strategy:FedAdam"])
def test_flowers_size_mods_log_what_travels_and_change_no_bit(strategy, monkeypatch):
    lines = []
    note = lambda level, text, *values: lines.append((text, values))  # noqa: E731
    monkeypatch.setattr("flwr.clientapp.mod.comms_mods.log", note)
    names = f"{FLOWERS}:message_size_mod,{FLOWERS}:arrays_size_mod"
    changes = {"strategy": strategy, "num_server_rounds": 2, "fraction_evaluate": 0.1}
    _, plain = train(**changes)
    assert lines == []
    _, modded = train(client_mods=names, **changes)
    assert same_model(plain, modded)
    assert not any(metrics.rejected for metrics in modded.history)
    sizes = [text["arrays"] for text, _ in lines if isinstance(text, dict) and text]
    # A round: 5 clients train, each with a model in and one out, and 2 test the model they get.
    assert len(sizes) == 2 * (2 * 5 + 2)
    assert all(size["elements"] == 7850 for size in sizes)


def test_run_with_local_differential_privacy_moves_by_at_most_the_norm_a_round():
    _, clipped = train(client_mods=f"{HERE}:clipping", num_server_rounds=3)
    _, plain = train(num_server_rounds=3)
    assert not any(metrics.rejected for metrics in clipped.history)
    assert 0 < distance(clipped) <= 3 * CLIPPING_NORM * 1.001
    assert not same_model(clipped, plain)


def test_error_reply_of_a_mod_is_a_rejected_reply_with_its_reason():
    """Flower's clipping without the server's side that sends the norm."""
    reasons = []
    with pytest.raises(NoRepliesError, match="no usable reply"):
        train(
            client_mods=f"{FLOWERS}:fixedclipping_mod",
            on_round_end=lambda metrics, model: reasons.extend(metrics.rejected.values()),
        )
    assert len(reasons) == 3 * 5
    assert all("requires the key 'clipping_norm'" in reason for reason in reasons)


def test_error_of_a_mod_names_its_own_line_not_the_librarys():
    reasons = []
    with pytest.raises(NoRepliesError, match=r"JSONDecodeError: .*client_mods.py, line \d+"):
        train(
            client_mods=f"{HERE}:reading",
            on_round_end=lambda metrics, model: reasons.extend(metrics.rejected.values()),
        )
    lines = Path(client_mods.__file__).read_text().splitlines()
    number = 1 + next(at for at, line in enumerate(lines) if "json.loads" in line)
    assert len(reasons) == 3 * 5
    assert all(
        reason.endswith(f"tests/support/client_mods.py, line {number})") for reason in reasons
    )


def test_flowers_central_privacy_runs_with_its_mod_on_the_clients():
    """The wrapper's own aggregation draws noise of deviation 0 around the clipped mean."""
    _, result = train(
        client_mods=f"{FLOWERS}:fixedclipping_mod",
        strategy=f"{__name__}:PrivateFedAvg",
        num_server_rounds=2,
    )
    assert not any(metrics.rejected for metrics in result.history)
    assert 0 < distance(result) <= 2 * CLIPPING_NORM * 1.001


def test_run_goes_on_where_privacy_mods_refuse_evaluation():
    """They are made for training; the run goes on without the clients' evaluation."""
    names = f"{HERE}:clipping"
    _, result = train(client_mods=names, num_server_rounds=1, fraction_evaluate=0.1)
    assert len(result.history[1].rejected) == 2
    assert result.history[1].client_metrics == {}
    _, plain = train(client_mods=names, num_server_rounds=1)
    assert same_model(result, plain)
