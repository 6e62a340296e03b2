"""The mods of "client-mods": Flower's own around our ClientApp, inside the strategy's mod."""

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict

import tasks
from fedavg_app.client.mods import chain
from fedavg_app.client_app import app
from fedavg_app.config import RunConfig
from fedavg_app.flower_internals import assign_message_id
from tests.support.client_mods import FLOWERS, calls

pytestmark = pytest.mark.usefixtures("server_identity")

MODEL = ArrayRecord(tasks.load("mnist-logistic").initial_model(1).state_dict())
RUN = {"task": "mnist-logistic", "data-source": "embedded", "num-clients": 20}


@pytest.fixture(autouse=True)
def _no_calls():
    calls.clear()


def client(**changes):
    node = {"partition-id": 3, "num-partitions": 20}
    run_config = RunConfig(**{**RUN, **changes}).model_dump(by_alias=True)
    return Context(1, 1000, node, RecordDict(), run_config)


def reply_with(mods="", kind="train", config=None, context=None):
    """Return the ClientApp's reply to one message, with these mods."""
    content = {
        "learning-rate": 0.1, "local-epochs": 1, "batch-size": 10, "seed": 1, "server-round": 1,
        "data-source": "embedded", **(config or {}),
    }  # fmt: skip
    records = RecordDict({"arrays": MODEL, "config": ConfigRecord(content)})
    message = Message(records, dst_node_id=1000, message_type=kind)
    assign_message_id(message)
    return app(message, context or client(**{"client-mods": mods, "fraction-evaluate": 1.0}))


def update(reply):
    """Return what the reply's model differs by from the model sent, as one vector."""
    pairs = zip(reply.content["arrays"].values(), MODEL.values(), strict=True)
    return np.concatenate([(new.numpy() - old.numpy()).ravel() for new, old in pairs])


def test_first_mod_is_the_outermost():
    def mod_named(name):
        def mod(message, context, call_next):
            order.append(name)
            reply = call_next(f"{message}{name}", context)
            order.append(name.upper())
            return reply + name

        return mod

    order = []
    handler = chain([mod_named(name) for name in "abc"], lambda message, context: f"<{message}>")
    assert handler("m", None) == "<mabc>cba"
    assert order == ["a", "b", "c", "C", "B", "A"]


@pytest.mark.parametrize("name", ["fixedclipping_mod", "adaptiveclipping_mod"])
@pytest.mark.parametrize("norm", [0.01, 1000.0])
def test_flowers_clipping_mods_clip_the_update(name, norm):
    config = {"clipping_norm": norm}
    plain, reply = update(reply_with(config=config)), reply_with(f"{FLOWERS}:{name}", config=config)
    expected = plain * min(1.0, norm / np.linalg.norm(plain))
    np.testing.assert_allclose(update(reply), expected, atol=1e-6)
    if name == "adaptiveclipping_mod":
        assert reply.content["metrics"]["norm_bit"] == (norm < 1)
