"""What the ClientApp keeps between messages: momentum in the context's state, and nothing else."""

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict

import tasks
from fedavg_app.client_app import app
from fedavg_app.config import RunConfig
from fedavg_app.internals import stamp
from fedavg_app.partitions import split_labels
from tasks.base import Examples
from tasks.client import TaskClient

TASK = tasks.load("mnist-logistic")
MODEL = ArrayRecord(TASK.initial_model(1).state_dict())
CONFIG = {
    "learning-rate": 0.05, "local-epochs": 1, "local-steps": 3, "batch-size": 10, "seed": 1,
    "data-source": "embedded",
}  # fmt: skip
RUN = RunConfig(**{"task": TASK.name, "data-source": "embedded", "num-clients": 20})
KINDS = ["train", "train.gradient"]


def context(number=3):
    node = {"partition-id": number, "num-partitions": 20}
    return Context(1, 1000, node, RecordDict(), RUN.model_dump(by_alias=True))


def ask(where, kind="train", server_round=1, momentum=0.9, arrays=MODEL, **changes):
    """Send one message to the ClientApp of that context; return its reply's arrays."""
    config = {**CONFIG, "server-round": server_round, "momentum": momentum, **changes}
    content = RecordDict({"arrays": arrays, "config": ConfigRecord(config)})
    message = Message(content, dst_node_id=1000, message_type=kind)
    stamp(message)
    return app(message, where).content["arrays"].to_numpy_ndarrays()


def same(a, b):
    return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_momentum_is_kept_from_round_to_round_for_each_client(kind):
    """Two clients whose messages alternate, against task clients with a velocity of their own."""
    data = TASK.dataset(RUN.data_options)
    parts = split_labels(data.train.targets, f"{data.fingerprint}-train", "iid", {}, 20, 1)
    contexts, velocities = {3: context(3), 8: context(8)}, {3: {}, 8: {}}
    for server_round in (1, 2, 3):
        for number in (3, 8):
            found = ask(contexts[number], kind, server_round)
            examples = Examples(
                TASK.prepare(torch.from_numpy(data.train.inputs[parts[number]])),
                torch.from_numpy(np.array(data.train.targets[parts[number]])),
            )
            client = TaskClient(TASK, TASK.model(), examples, partition=number)
            work = client.fit if kind == "train" else client.gradient
            config = {**CONFIG, "server-round": server_round, "momentum": 0.9}
            assert same(found, work(MODEL.to_numpy_ndarrays(), config, velocities[number])[0])
            stored = contexts[number].state["momentum"]
            assert list(stored) == list(velocities[number]) == list(MODEL)
            assert same(stored.to_numpy_ndarrays(), velocities[number].values())


@pytest.mark.parametrize("kind", KINDS)
def test_without_momentum_nothing_is_stored(kind):
    where = context()
    first = ask(where, kind, momentum=0.0)
    assert same(first, ask(where, kind, momentum=0.0))
    assert dict(where.state) == {}


@pytest.mark.parametrize("kind", KINDS)
def test_a_client_that_lost_its_state_begins_again_from_zero(kind):
    where = context()
    first = ask(where, kind)
    assert not same(first, ask(where, kind))
    where.state = RecordDict()
    assert same(first, ask(where, kind))


def test_a_training_that_fails_leaves_the_state_as_it_was():
    where = context()
    ask(where)
    before = where.state["momentum"]
    short = ArrayRecord({"1.weight": MODEL["1.weight"]})
    with pytest.raises(ValueError, match="arrays"):
        ask(where, arrays=short)
    assert where.state["momentum"] is before


@pytest.mark.parametrize("kind", KINDS)
def test_a_buffer_that_is_not_finite_is_forgotten(kind):
    """Or the client could never again send anything but NaN."""
    where = context()
    first = ask(where, kind)
    poisoned = {name: Array(np.full(array.shape, np.nan, "f4")) for name, array in MODEL.items()}
    ask(where, kind, arrays=ArrayRecord(poisoned))
    assert same(first, ask(where, kind))
