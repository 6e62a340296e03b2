"""Messages on their way to workers: shared once, and each client's own in the end."""

import pickle

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict

from fedavg_app.flower_internals import FIRST_NODE_ID, assign_message_id, identify_server
from fedavg_app.ray_engine.messages import Batch, make_message


@pytest.fixture
def messages():
    identify_server(1)
    model = ArrayRecord({"w": Array(np.zeros(1000, np.float32))})
    config = ConfigRecord({"learning-rate": 0.1, "list": [1, 2]})
    made = [
        Message(
            RecordDict({"arrays": model, "config": config, "own": ConfigRecord({"n": client})}),
            dst_node_id=FIRST_NODE_ID + client, message_type="train", group_id="7", ttl=9.0,
        )
        for client in range(3)
    ]  # fmt: skip
    for message in made:
        assign_message_id(message)
    return made


def received(messages):
    """Return the messages as a worker's clients get them."""
    batch = Batch(messages, 0.0, 0.0)
    lines = pickle.loads(pickle.dumps([one.line() for one in batch.waiting.values()]))
    assert len(pickle.dumps(lines)) < 4000  # the model is not in them
    shared = pickle.loads(batch.shared)
    return [make_message(line, shared) for line in lines]


def test_messages_arrive_as_they_were_sent(messages):
    for before, after in zip(messages, received(messages), strict=True):
        assert after.content == before.content
        assert list(after.content) == list(before.content)
        assert vars(after.metadata) == vars(before.metadata)


def test_what_one_client_overwrites_no_other_sees(messages):
    expected = pickle.loads(pickle.dumps(messages[1].content))
    first, second, _ = received(messages)
    first.content["arrays"]["w"].data = b""
    first.content["arrays"]["new"] = Array(np.zeros(1))
    first.content["config"]["list"].append(3)
    first.content["config"]["learning-rate"] = 9.0
    del first.content["own"]
    assert second.content == expected
