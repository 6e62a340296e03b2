import json
from types import SimpleNamespace

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.proto.message_pb2 import ObjectTree
from flwr.supercore.inflatable.inflatable_object import get_object_id

from fedavg_app.errors import RunError
from fedavg_app.network import flower_http, network_grid
from fedavg_app.network.network_grid import MAX_UPLOAD_SECONDS, bounded
from fedavg_app.server.polling import send
from tests.support.fake_superlink import FakeSuperLink
from tests.support.hostile_transport import (
    MALFORMED,
    false_chunk,
    forged_array,
    large,
    many_arrays,
    repeated_chunk,
)
from tests.support.scripted_grid import Clock, ScriptedGrid, training_messages

pytestmark = pytest.mark.usefixtures("server_identity")

MODEL = ArrayRecord({"w": Array(np.zeros((10, 784), np.float32))})
ARRAY_BYTES = len(MODEL["w"].data)


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    time = SimpleNamespace(monotonic=lambda: clock.now, sleep=clock.sleep)
    monkeypatch.setattr(network_grid, "time", time)
    return clock


@pytest.fixture
def superlink():
    return FakeSuperLink()


@pytest.fixture
def grid(superlink, clock):
    return bounded(superlink.grid, MODEL, ARRAY_BYTES)


def reply_to(message, value=1.0):
    arrays = ArrayRecord({"w": Array(np.full((10, 784), value, np.float32))})
    metrics = MetricRecord({"num-examples": 3})
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)


def sent(grid, *nodes):
    messages = training_messages(nodes)
    assert all(send(grid, messages))
    return messages, [message.metadata.message_id for message in messages]


def pull(grid, ids):
    """Pull until nothing comes."""
    found = []
    while replies := grid.pull_messages(ids):
        assert len(replies) == 1
        found += replies
    return found


def test_other_grids_are_used_as_they_are(clock):
    grid = ScriptedGrid(clock, [])
    assert bounded(grid, MODEL, ARRAY_BYTES) is grid


def test_flower_with_another_network_grid_is_refused_in_one_line(superlink):
    del superlink.grid.node
    with pytest.raises(RunError, match=r"network grid of Flower .* install flwr 1.41") as caught:
        bounded(superlink.grid, MODEL, ARRAY_BYTES)
    assert "\n" not in str(caught.value)


def test_replies_arrive_with_their_content_one_a_call_and_are_deleted(superlink, grid):
    (first, second), ids = sent(grid, 10, 11)
    assert grid.pull_messages(ids) == []
    superlink.add(ids[0], reply_to(first, 1.0))
    superlink.add(ids[1], reply_to(second, 2.0))
    found = pull(grid, ids)
    values = {m.metadata.src_node_id: m.content["arrays"]["w"].numpy()[0, 0] for m in found}
    assert values == {10: 1.0, 11: 2.0}
    assert all(m.content["metrics"]["num-examples"] == 3 for m in found)
    assert {m.metadata.reply_to_message_id for m in found} == set(ids)
    assert len(superlink.deleted) == 2
    asked = len(superlink.requests)
    assert grid.pull_messages(ids) == []
    assert len(superlink.requests) == asked  # what is answered is not asked for again


def test_messages_without_a_reply_are_asked_for_once_while_others_arrive(superlink, grid):
    messages, ids = sent(grid, *range(10, 50))
    for message, message_id in zip(messages[:20], ids, strict=False):
        superlink.add(message_id, reply_to(message))
    assert len(pull(grid, ids)) == 20
    # All once, and those without a reply once more in the call that finds nothing.
    assert superlink.requests.count("pull-messages") <= 40 + 20


def test_superlink_is_left_alone_for_a_while_unless_more_replies_may_be_there(
    superlink, grid, clock
):
    (message, _), ids = sent(grid, 10, 11)
    assert not grid.pull_messages(ids)
    grid.wait(0.002)
    assert clock.now == network_grid.MIN_PAUSE
    superlink.add(ids[0], reply_to(message))
    assert grid.pull_messages(ids)
    grid.wait(0.5)
    assert clock.now == network_grid.MIN_PAUSE


@pytest.mark.parametrize(("attack", "expected"), MALFORMED)
def test_malformed_reply_is_refused_with_its_reason_and_the_others_arrive(
    superlink, grid, attack, expected
):
    (first, second), ids = sent(grid, 10, 11)
    hostile = reply_to(first)
    attack(hostile)
    superlink.add(ids[0], hostile)
    superlink.add(ids[1], reply_to(second))
    found = {reply.metadata.src_node_id: reply for reply in pull(grid, ids)}
    assert found[11].content["arrays"]["w"].numpy()[0, 0] == 1.0
    if found[10].has_error():
        assert expected in found[10].error.reason
        assert "\n" not in found[10].error.reason
        assert found[10].metadata.reply_to_message_id == ids[0]
    else:  # small and well-formed: for the strategy to reject
        assert "\ud800" in found[10].content["arrays"]
    assert len(superlink.deleted) == 2


@pytest.mark.parametrize("attack", [large, many_arrays, repeated_chunk])
def test_what_a_refused_reply_costs_to_read_is_bounded_by_the_model(superlink, grid, attack):
    (message,), ids = sent(grid, 10)
    hostile = reply_to(message)
    attack(hostile)
    superlink.add(ids[0], hostile)
    (refused,) = pull(grid, ids)
    assert refused.has_error()
    assert superlink.sent < 2 * ARRAY_BYTES + 400_000


def test_array_that_is_joined_from_the_same_chunk_again_counts_each_time(superlink, clock):
    """Within the number of chunks, so that only the sum of their bytes tells."""
    grid = bounded(superlink.grid, MODEL, ARRAY_BYTES)
    (message,), ids = sent(grid, 10)
    hostile = reply_to(message)
    hostile.content["arrays"]["x"] = forged_array(bytes(20_000), [0] * 60)
    superlink.add(ids[0], hostile)
    (refused,) = pull(grid, ids)
    assert "array bytes, at most" in refused.error.reason


def test_announcement_that_is_too_large_is_refused_unread(superlink, grid):
    (message,), ids = sent(grid, 10)
    superlink.add(ids[0], Message(Error(2, "x" * 5_000_000), reply_to=message))
    (refused,) = pull(grid, ids)
    assert "ResponseTooLargeError: 5000" in refused.error.reason
    assert superlink.sent < 1000


def test_error_of_a_client_arrives_as_it_is(superlink, grid):
    (message,), ids = sent(grid, 10)
    superlink.add(ids[0], Message(Error(2, "ValueError: no data"), reply_to=message))
    (reply,) = pull(grid, ids)
    assert (reply.error.code, reply.error.reason) == (2, "ValueError: no data")


def test_metadata_in_the_object_do_not_count(superlink, grid):
    """A device could write another node's id, or another message's, into its reply's object."""
    (_, second), ids = sent(grid, 10, 11)
    forged = reply_to(second)
    metadata = {"src_node_id": 10, "reply_to_message_id": ids[0]}
    superlink.add(ids[0], forged, **metadata)
    (reply,) = pull(grid, ids)
    assert reply.metadata.src_node_id == 10
    assert reply.metadata.reply_to_message_id == ids[0]


def test_message_whose_content_is_no_record_dict_is_refused(superlink, grid):
    (message,), ids = sent(grid, 10)
    hostile = reply_to(message)
    hostile.__dict__["_content"] = hostile.content["arrays"]
    superlink.add(ids[0], hostile)
    (refused,) = pull(grid, ids)
    assert refused.error.reason.startswith("refused: ")


def test_object_without_a_head_is_refused(superlink, grid):
    (message,), ids = sent(grid, 10)
    content = b"x" * 1000
    tree = ObjectTree(object_id=get_object_id(content))
    superlink.objects[tree.object_id] = content
    superlink.add(ids[0], reply_to(message), tree=tree)
    (refused,) = pull(grid, ids)
    assert "an object has no head" in refused.error.reason


def test_unfinished_upload_is_taken_up_again_and_does_not_keep_others_waiting(superlink, grid):
    (first, second), ids = sent(grid, 10, 11)
    objects = superlink.add(ids[0], reply_to(first))
    late = {key: superlink.objects[key] for key in objects[1:]}
    superlink.objects |= dict.fromkeys(late, b"")
    superlink.add(ids[1], reply_to(second))
    assert [reply.metadata.src_node_id for reply in pull(grid, ids)] == [11]
    before = superlink.requests.count("pull-object")
    assert grid.pull_messages(ids) == []
    assert superlink.requests.count("pull-object") == before + 1  # only what is next
    superlink.objects |= late
    assert [reply.metadata.src_node_id for reply in pull(grid, ids)] == [10]


def test_upload_that_the_superlink_gave_up_is_refused(superlink, grid):
    (message,), ids = sent(grid, 10)
    objects = superlink.add(ids[0], reply_to(message))
    superlink.objects[objects[-1]] = b""
    assert pull(grid, ids) == []
    del superlink.objects[objects[-1]]
    (refused,) = pull(grid, ids)
    assert "its upload ended before all of it had arrived" in refused.error.reason


@pytest.mark.parametrize("seconds", [31.0, None])
def test_upload_that_takes_longer_than_its_message_lives_is_refused(
    superlink, grid, clock, seconds
):
    messages = training_messages([10])
    if seconds:
        messages[0].metadata.ttl = seconds
    (message_id,) = send(grid, messages)
    objects = superlink.add(message_id, reply_to(messages[0]))
    superlink.objects[objects[-1]] = b""
    limit = seconds or MAX_UPLOAD_SECONDS
    clock.now = limit - 1 if seconds else 0
    assert pull(grid, [message_id]) == []
    clock.now = limit + 1
    (refused,) = pull(grid, [message_id])
    assert "its upload did not end in time" in refused.error.reason
    assert len(superlink.deleted) == 1


def test_unfinished_upload_that_nobody_asks_for_is_dropped(superlink, grid, clock):
    messages = training_messages([10])
    messages[0].metadata.ttl = 5.0
    (message_id,) = send(grid, messages)
    objects = superlink.add(message_id, reply_to(messages[0]))
    superlink.objects[objects[-1]] = b""
    assert pull(grid, [message_id]) == []
    clock.now = 6.0
    sent(grid, 11)
    assert len(superlink.deleted) == 1


def test_flowers_own_grid_raises_what_one_reply_raises(superlink):
    """What this grid is for; when Flower changes that, it may no longer be needed."""
    grid = superlink.grid
    (message,) = training_messages([10])
    (message_id,) = grid.push_messages([message])
    hostile = reply_to(message)
    false_chunk(hostile)
    superlink.add(message_id, hostile)
    with pytest.raises(IndexError):
        grid.pull_messages([message_id])


def test_settings_of_a_reply_are_bounded_as_well(superlink, grid):
    (message,), ids = sent(grid, 10)
    hostile = reply_to(message)
    hostile.content["x"] = ConfigRecord({"x": "y" * 500_000})
    superlink.add(ids[0], hostile)
    (refused,) = pull(grid, ids)
    assert "TooLargeError" in refused.error.reason
    assert json.dumps(refused.error.reason)


def test_request_that_the_superlink_failed_to_answer_is_tried_again(superlink, grid):
    (message,), ids = sent(grid, 10)
    superlink.add(ids[0], reply_to(message))
    superlink.failures = 1
    (reply,) = pull(grid, ids)
    assert reply.content["metrics"]["num-examples"] == 3


def test_request_that_keeps_failing_is_the_refusal_of_its_reply(superlink, grid, monkeypatch):
    monkeypatch.setattr(flower_http, "PATIENCE_SECONDS", 1.5)
    (message,), ids = sent(grid, 10)
    superlink.add(ids[0], reply_to(message))
    superlink.failures = 1000
    (refused,) = pull(grid, ids)
    assert "refused: HTTPStatusError: Server error '500 Internal" in refused.error.reason


def test_update_in_a_settings_record_may_be_as_large_as_update_bytes_allow(superlink, clock):
    """Compressed strategies send their update as bytes in a ConfigRecord."""
    for update_bytes, arrives in ((1_000_000, True), (500_000, False)):
        grid = bounded(superlink.grid, MODEL, update_bytes)
        (message,), ids = sent(grid, 10)
        update = ConfigRecord({"payload": bytes(1_000_000), "num-examples": 3})
        superlink.add(ids[0], Message(RecordDict({"update": update}), reply_to=message))
        (reply,) = pull(grid, ids)
        assert reply.has_content() == arrives
