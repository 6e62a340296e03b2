"""The mods of "client-mods": Flower's own around our ClientApp, inside the strategy's mod."""

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Context, Error, Message, RecordDict
from flwr.clientapp.mod import LocalDpMod
from flwr.serverapp.strategy import DifferentialPrivacyClientSideFixedClipping
from flwr.serverapp.strategy import FedAvg as FlowersFedAvg

import tasks
from fedavg_app.client_app import app
from fedavg_app.config import RunConfig
from fedavg_app.errors import ConfigError, RunError
from fedavg_app.internals import stamp
from fedavg_app.mods import chain, load_mods
from strategies.fedavg import FedAvg
from tests.fedavg_app.test_rounds import model, same, train

HERE = __name__
FLOWERS = "flwr.clientapp.mod"
MODEL = ArrayRecord(tasks.load("mnist-logistic").initial_model(1).state_dict())
CLIPPING_NORM = 0.01

# Without noise, so that what the clipping does can be compared; and with.
clipping = LocalDpMod(clipping_norm=CLIPPING_NORM, sensitivity=0.0, epsilon=1.0, delta=0.1)
noisy = LocalDpMod(clipping_norm=CLIPPING_NORM, sensitivity=0.1, epsilon=1.0, delta=0.1)
not_a_mod = 3
seen = []


def outer(message, context, call_next):
    seen.append("outer")
    return call_next(message, context)


def inner(message, context, call_next):
    """Note the records that a mod of the user sees."""
    seen.append((message.metadata.message_type, *message.content))
    reply = call_next(message, context)
    seen.append(tuple(reply.content))
    return reply


def refusing(message, context, call_next):
    return Message(Error(42, "not today"), reply_to=message)


class Packed(FedAvg):
    """Packed: FedAvg that sends other records than the handler knows, and counts in its state."""

    def configure_train(self, server_round, arrays, config, grid):
        messages = super().configure_train(server_round, arrays, config, grid)
        for message in messages:
            message.content["packed"] = message.content.pop("arrays")
        return messages

    @staticmethod
    def client_mod(message, context, call_next):
        seen.append("strategy")
        if "packed" in message.content:
            content = dict(message.content)
            message.content = RecordDict({"arrays": content["packed"], "config": content["config"]})
        reply = call_next(message, context)
        context.state["done"] = ConfigRecord({"records": list(reply.content)})
        return reply


class Private(DifferentialPrivacyClientSideFixedClipping):
    """Flower's server side of `fixedclipping_mod`, without noise."""

    def __init__(self, **keywords):
        super().__init__(FlowersFedAvg(**keywords), 0.0, CLIPPING_NORM, num_sampled_clients=5)


@pytest.fixture(autouse=True)
def _nothing_seen():
    seen.clear()


def context(**changes):
    values = {"task": "mnist-logistic", "data-source": "embedded", "num-clients": 20, **changes}
    node = {"partition-id": 3, "num-partitions": 20}
    run_config = RunConfig(**values).model_dump(by_alias=True)
    return Context(1, 1000, node, RecordDict(), run_config)


def answer(mods="", kind="train", config=None, where=None):
    """Return the ClientApp's reply to one message."""
    content = {
        "learning-rate": 0.1, "local-epochs": 1, "batch-size": 10, "seed": 1, "server-round": 1,
        "data-source": "embedded", **(config or {}),
    }  # fmt: skip
    records = RecordDict({"arrays": MODEL, "config": ConfigRecord(content)})
    message = Message(records, dst_node_id=1000, message_type=kind)
    stamp(message)
    return app(message, where or context(**{"client-mods": mods, "fraction-evaluate": 1.0}))


def update(reply):
    """Return what the reply's model differs by from the model sent, as one vector."""
    pairs = zip(reply.content["arrays"].values(), MODEL.values(), strict=True)
    return np.concatenate([(new.numpy() - old.numpy()).ravel() for new, old in pairs])


def test_names_are_separated_by_commas():
    assert load_mods("") == load_mods(" , ") == []
    assert load_mods(f"{HERE}:outer") == [outer]
    assert load_mods(f" {HERE}:outer,{HERE}:clipping ,{HERE}:inner,") == [outer, clipping, inner]


@pytest.mark.parametrize(
    ("name", "fragment"),
    [
        ("no_such_package:mod", "cannot import it as package.module:attribute (No module named"),
        (f"{FLOWERS}:no_such_mod", "has no attribute 'no_such_mod'"),
        (FLOWERS, "cannot import it as package.module:attribute"),
        (":mod", "cannot import"),
        (f"{HERE}:not_a_mod", "not a function (message, context, call_next)"),
        (f"{FLOWERS}:LocalDpMod", "a class; name an instance of it"),
    ],
)
def test_what_is_no_mod_is_refused_by_name_on_both_sides(name, fragment):
    def check(act):
        with pytest.raises(ConfigError) as caught:
            act()
        assert str(caught.value).startswith(f"client-mods = {name!r}: ")
        assert fragment in str(caught.value)
        assert "\n" not in str(caught.value)

    names = f"{HERE}:outer, {name}"
    check(lambda: load_mods(names))
    check(lambda: answer(names))
    check(lambda: train(client_mods=names))


def test_the_first_is_the_outermost():
    def note(name):
        def mod(message, context, call_next):
            calls.append(name)
            reply = call_next(f"{message}{name}", context)
            calls.append(name.upper())
            return reply + name

        return mod

    calls = []
    handler = chain([note("a"), note("b"), note("c")], lambda message, context: f"<{message}>")
    assert handler("m", None) == "<mabc>cba"
    assert calls == ["a", "b", "c", "C", "B", "A"]


def test_they_run_inside_the_strategys_mod_and_see_plain_records():
    """Whatever the strategy does to the records, for training and for evaluation."""
    names = f"{HERE}:outer,{HERE}:inner"
    train(
        strategy=f"{HERE}:Packed", client_mods=names, num_server_rounds=1, num_clients=2,
        fraction_train=0.0, fraction_evaluate=0.5,
    )  # fmt: skip
    assert seen == [
        *("strategy", "outer", ("train", "arrays", "config"), ("metrics", "arrays")),
        *("strategy", "outer", ("evaluate", "arrays", "config"), ("metrics",)),
    ]


def test_they_run_around_the_gradient_too():
    train(strategy="fedsgd", client_mods=f"{HERE}:inner", num_server_rounds=1, fraction_train=0.0)
    assert seen == [("train.gradient", "arrays", "config"), ("metrics", "arrays")]


def test_a_mods_refusal_passes_by_the_strategys_mod():
    changes = {"strategy": f"{HERE}:Packed", "client-mods": f"{HERE}:refusing"}
    where = context(**changes)
    reply = answer(where=where)
    assert (reply.error.code, reply.error.reason) == (42, "not today")
    assert seen == ["strategy"]
    assert dict(where.state) == {}, "the strategy's mod went no further than its call"


@pytest.mark.parametrize("strategy", ["fedavg", "fedsgd", "flwr.serverapp.strategy:FedAdam"])
def test_flowers_size_mods_change_nothing_and_say_what_travels(strategy, monkeypatch):
    lines = []
    note = lambda level, text, *values: lines.append((text, values))  # noqa: E731
    monkeypatch.setattr("flwr.clientapp.mod.comms_mods.log", note)
    names = f"{FLOWERS}:message_size_mod,{FLOWERS}:arrays_size_mod"
    changes = {"strategy": strategy, "num_server_rounds": 2, "fraction_evaluate": 0.1}
    _, plain = train(**changes)
    assert lines == []
    _, modded = train(client_mods=names, **changes)
    assert same(plain, modded)
    assert not any(record.rejected for record in modded.records)
    sizes = [text["arrays"] for text, _ in lines if isinstance(text, dict) and text]
    # A round: 5 clients train, each with a model in and one out, and 2 test the model they get.
    assert len(sizes) == 2 * (2 * 5 + 2)
    assert all(size["elements"] == 7850 for size in sizes)


def test_local_differential_privacy_clips_the_update():
    plain, clipped = update(answer()), update(answer(f"{HERE}:clipping"))
    assert np.linalg.norm(plain) > 10 * CLIPPING_NORM
    expected = plain * (CLIPPING_NORM / np.linalg.norm(plain))
    np.testing.assert_allclose(clipped, expected, atol=1e-7)


def test_local_differential_privacy_adds_its_noise():
    noise = update(answer(f"{HERE}:noisy")) - update(answer(f"{HERE}:clipping"))
    deviation = 0.1 * np.sqrt(2 * np.log(1.25 / 0.1)) / 1.0
    assert noise.std() == pytest.approx(deviation, rel=0.05)
    assert abs(noise.mean()) < 5 * deviation / np.sqrt(len(noise))


def test_a_run_with_local_differential_privacy_moves_by_no_more_than_the_norm():
    _, outcome = train(client_mods=f"{HERE}:clipping", num_server_rounds=3)
    _, plain = train(num_server_rounds=3)
    assert not any(record.rejected for record in outcome.records)
    start = [array.numpy() for array in MODEL.values()]
    moved = [b - a for a, b in zip(start, model(outcome), strict=True)]
    assert 0 < np.sqrt(sum(np.sum(array**2.0) for array in moved)) <= 3 * CLIPPING_NORM * 1.001
    assert not same(outcome, plain)


@pytest.mark.parametrize("name", ["fixedclipping_mod", "adaptiveclipping_mod"])
@pytest.mark.parametrize("norm", [0.01, 1000.0])
def test_flowers_clipping_mods_clip(name, norm):
    config = {"clipping_norm": norm}
    plain, reply = update(answer(config=config)), answer(f"{FLOWERS}:{name}", config=config)
    expected = plain * min(1.0, norm / np.linalg.norm(plain))
    np.testing.assert_allclose(update(reply), expected, atol=1e-6)
    if name == "adaptiveclipping_mod":
        assert reply.content["metrics"]["norm_bit"] == (norm < 1)


def test_a_mods_refusal_is_a_rejected_reply_with_its_reason():
    """Flower's clipping without the server's side that sends the norm."""
    reasons = []
    with pytest.raises(RunError, match="no usable reply"):
        train(
            client_mods=f"{FLOWERS}:fixedclipping_mod",
            on_round=lambda record: reasons.extend(record.rejected.values()),
        )
    assert len(reasons) == 3 * 5
    assert all("requires the key 'clipping_norm'" in reason for reason in reasons)


def test_flowers_central_privacy_runs_with_its_mod_on_the_clients():
    """The wrapper's own aggregation draws noise of deviation 0 around the clipped mean."""
    changes = {"strategy": f"{HERE}:Private", "num_server_rounds": 2}
    _, outcome = train(client_mods=f"{FLOWERS}:fixedclipping_mod", **changes)
    assert not any(record.rejected for record in outcome.records)
    moved = [b - a.numpy() for a, b in zip(MODEL.values(), model(outcome), strict=True)]
    assert 0 < np.sqrt(sum(np.sum(array**2.0) for array in moved)) <= 2 * CLIPPING_NORM * 1.001


def test_privacy_mods_refuse_evaluation_which_has_no_arrays():
    """They are made for training; the run goes on without the clients' evaluation."""
    names = f"{HERE}:clipping"
    assert "exactly one ArrayRecord" in answer(names, kind="evaluate").error.reason
    _, outcome = train(client_mods=names, num_server_rounds=1, fraction_evaluate=0.1)
    assert len(outcome.records[1].rejected) == 2
    assert outcome.records[1].client_metrics == {}
    _, plain = train(client_mods=names, num_server_rounds=1)
    assert same(outcome, plain)
