import dataclasses
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Context, Error, Message, RecordDict

from fedavg_app.client.mods import with_mods
from fedavg_app.errors import NoRepliesError
from strategies.fedavg import FedAvg
from strategies.rounds.client_memory import ClientMemory
from tests.support import client_mods
from tests.support.client_mods import HERE, calls
from tests.support.in_process import same_model, train


@pytest.fixture(autouse=True)
def _no_calls():
    calls.clear()


class PackingFedAvg(FedAvg):
    def client(self, received, memory, train):
        calls.append("strategy")
        update = train(received.model)
        payload = update.model.vector.tobytes()
        return dataclasses.replace(update, model=None, payload=payload), ClientMemory(1)

    def read(self, now, reply):
        return (np.frombuffer(reply.payload, np.float32),)


def test_mods_run_inside_the_strategys_mod_and_see_plain_records():
    """Whatever the strategy sends; evaluations bypass its client's end."""
    train(
        strategy=f"{__name__}:PackingFedAvg", client_mods=f"{HERE}:outer,{HERE}:inner",
        num_server_rounds=1, num_clients=2, fraction_train=0.0, fraction_evaluate=0.5,
    )  # fmt: skip
    assert calls == [
        *("strategy", "outer", ("train", "arrays", "config"), ("metrics", "arrays")),
        *("outer", ("evaluate", "arrays", "config"), ("metrics",)),
    ]


def replying_with_a_long_error(message, context, call_next):
    return Message(Error(0, "x" * 100_000 + "\udcff"), reply_to=message)


def test_error_reply_of_a_mod_is_cut_and_can_be_sent():
    """A SuperLink refuses an error of 64 kB, and half a surrogate pair cannot be sent."""
    client, message = with_mods(None), Message(RecordDict(), dst_node_id=7, message_type="train")
    mods = {"strategy": "fedavg", "client-mods": f"{__name__}:replying_with_a_long_error"}
    reply = client(message, Context(1, 7, {}, RecordDict(), mods))
    assert reply.error.reason == "x" * 1999 + "?"


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
    place = f"tests/support/client_mods.py, line {number})"
    assert all(reason.endswith(place) for reason in reasons)


def test_run_continues_when_privacy_mods_refuse_evaluation():
    """They are made for training; the run continues without the clients' evaluation."""
    names = f"{HERE}:clipping"
    _, result = train(client_mods=names, num_server_rounds=1, fraction_evaluate=0.1)
    assert len(result.history[1].rejected) == 2
    assert result.history[1].client_metrics == {}
    _, plain = train(client_mods=names, num_server_rounds=1)
    assert same_model(result, plain)


def test_mod_that_forgets_the_reply_is_named():
    with pytest.raises(NoRepliesError, match="TypeError: the mod forgetful returned None, not"):
        train(client_mods=f"{HERE}:forgetful")


@pytest.mark.parametrize("strategy", ["fedavg", "stc", "flwr.serverapp.strategy:FedAvg"])
def test_metrics_that_a_mod_adds_to_training_are_in_the_history(strategy):
    _, result = train(strategy=strategy, client_mods=f"{HERE}:with_norm")
    for metrics in result.history[1:]:
        assert metrics.train_metrics == pytest.approx({"grad-norm": 1.5})
