"""The ClientApp: what it replies, and what it keeps between messages, which is momentum only.

Mods: tests/integration/test_client_mods.py has their order, and what goes wrong with them.
"""

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict

import tasks
from fedavg_app.client.mods import ClientFailedError
from fedavg_app.client_app import app
from fedavg_app.config import RunConfig
from fedavg_app.flower_internals import assign_message_id
from fedavg_app.partitioning import partition
from tasks.data.dataset import DataError, DataOptions
from tasks.training.examples import Examples
from tasks.training.local_training import TaskClient
from tests.support import data_slices
from tests.support.task_clients import fit, gradient

pytestmark = pytest.mark.usefixtures("server_identity")

TASK = tasks.load("mnist-logistic")
MODEL = ArrayRecord(TASK.initial_model(1).state_dict())
CONFIG = {
    "learning-rate": 0.05, "local-epochs": 1, "local-steps": 3, "batch-size": 10, "seed": 1,
    "data-source": "embedded",
}  # fmt: skip
KEYS = {"task": TASK.name, "data-source": "embedded", "num-clients": 20}
RUN = RunConfig(**KEYS)
KINDS = ["train", "train.gradient"]


def context(number=3, **keys):
    node = {"partition-id": number, "num-partitions": 20}
    run_config = RunConfig(**KEYS, **keys).model_dump(by_alias=True)
    return Context(1, 1000, node, RecordDict(), run_config)


def reply_of(client, kind="train", arrays=MODEL, **changes):
    """Send one message to the ClientApp with a client's context; return its reply."""
    config = {**CONFIG, "server-round": 1, **changes}
    content = RecordDict({"arrays": arrays, "config": ConfigRecord(config)})
    message = Message(content, dst_node_id=1000, message_type=kind)
    assign_message_id(message)
    return app(message, client)


def request(client, kind="train", server_round=1, arrays=MODEL):
    """Return the arrays of the reply to a message with momentum."""
    keys = {"server-round": server_round, "momentum": 0.9}
    return reply_of(client, kind, arrays, **keys).content["arrays"].to_numpy_ndarrays()


def same(a, b):
    return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_momentum_is_kept_from_round_to_round_for_each_client(kind):
    """Two clients whose messages alternate, against task clients with buffers of their own."""
    data = TASK.dataset(RUN.data_options)
    parts = partition(data, "train", RunConfig(num_clients=20, seed=1))
    contexts, buffers = {3: context(3), 8: context(8)}, {3: {}, 8: {}}
    for server_round in (1, 2, 3):
        for number in (3, 8):
            found = request(contexts[number], kind, server_round)
            examples = Examples(
                TASK.prepare(torch.from_numpy(data.train.inputs[parts[number]])),
                torch.from_numpy(np.array(data.train.targets[parts[number]])),
            )
            task_client = TaskClient(TASK, TASK.model, examples, partition=number)
            work = fit if kind == "train" else gradient
            config = {**CONFIG, "server-round": server_round, "momentum": 0.9}
            assert same(
                found, work(task_client, MODEL.to_numpy_ndarrays(), config, buffers[number])[0]
            )
            stored = contexts[number].state["momentum"]
            assert list(stored) == list(buffers[number]) == list(MODEL)
            assert same(stored.to_numpy_ndarrays(), buffers[number].values())


def test_training_that_fails_leaves_the_state_unchanged():
    client = context()
    request(client)
    before = client.state["momentum"]
    short = ArrayRecord({"1.weight": MODEL["1.weight"]})
    with pytest.raises(ClientFailedError, match="arrays"):
        request(client, arrays=short)
    assert client.state["momentum"] is before


@pytest.mark.parametrize(
    ("text", "sent"), [("x" * 100_000, r"x{1997}\.\.\."), ("no file a\udcff", r"no file a\?")]
)
def test_text_of_an_error_is_cut_and_can_be_sent(monkeypatch, text, sent):
    """A SuperLink refuses a reply whose error has 64 kB, and half a surrogate pair has no UTF-8."""

    def failing(*_):
        raise ValueError(text)

    monkeypatch.setattr(TaskClient, "train", failing)
    with pytest.raises(ClientFailedError, match=rf"^ValueError: {sent} \(.*, line \d+\)$"):
        request(context())


@pytest.mark.parametrize("kind", KINDS)
def test_momentum_buffer_that_is_not_finite_is_dropped(kind):
    """Otherwise the client could never again send anything but NaN."""
    client = context()
    first = request(client, kind)
    poisoned = {name: Array(np.full(array.shape, np.nan, "f4")) for name, array in MODEL.items()}
    request(client, kind, arrays=ArrayRecord(poisoned))
    assert same(first, request(client, kind))


def query(**node_config):
    message = Message(RecordDict(), dst_node_id=1000, message_type="query")
    assign_message_id(message)
    return app(message, Context(1, 1000, node_config, RecordDict(), {"task": TASK.name}))


@pytest.mark.parametrize("number", [None, "5", True])
def test_query_of_a_node_without_a_partition_fails_with_what_to_do(number):
    node_config = {} if number is None else {"partition-id": number}
    with pytest.raises(ValueError, match='start this SuperNode with --node-config "partition-id='):
        query(**node_config)


@pytest.mark.parametrize("key", ["data-dir", "data-path"])
def test_query_reports_a_nodes_own_data(tmp_path, key):
    assert dict(query(**{"partition-id": 2}).content["node"]) == {"partition-id": 2}
    data_slices.mnist(tmp_path)  # 120 images
    fingerprint = TASK.dataset(DataOptions(directory=str(tmp_path))).fingerprint
    reply = query(**{"partition-id": 2, key: str(tmp_path)})
    assert dict(reply.content["node"]) == {
        "partition-id": 2, "own-data": fingerprint, "own-examples": 120,
    }  # fmt: skip


def test_query_of_a_node_whose_data_are_not_there_fails_with_what_to_do(tmp_path):
    with pytest.raises(DataError, match="is not a directory; give the folder that holds the four"):
        query(**{"partition-id": 2, "data-dir": str(tmp_path / "none")})
