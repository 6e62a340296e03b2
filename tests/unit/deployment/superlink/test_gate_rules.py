"""Which requests of a device are served: messages and replies are Flower's own."""

import numpy as np
import pytest
from flwr.app import ConfigRecord, RecordDict
from flwr.proto.fleet_pb2 import PushMessagesRequest, PushMessagesResponse
from flwr.proto.message_pb2 import (
    ConfirmMessageReceivedRequest,
)
from flwr.proto.node_pb2 import Node

from deployment.superlink.gate_rules import SPARE_BYTES, GateRules, RefusedError
from tests.support.gated_device import MODEL, NODE, RUN, Device, forged_record, record

OTHER = 6


@pytest.fixture
def device():
    return Device()


@pytest.mark.parametrize(
    "content",
    [
        record(MODEL + 1),
        record(np.zeros((2, 10_000), np.float16)),
        RecordDict({"update": ConfigRecord({"payload": bytes(30_000), "num-examples": 3})}),
        RecordDict(),
    ],
    ids=["model", "zeros", "compressed", "empty"],
)
def test_reply_of_the_models_size_is_served(device, content):
    device.reply(content)


def test_zeros_that_travel_as_the_same_chunk_twice_are_served():
    zeros = np.zeros(3 * 2**20, np.float32)  # two chunks of 5 MiB that are alike, and a rest
    Device(arrays=[zeros]).reply(record(zeros))


def test_reply_may_be_announced_again_but_a_second_reply_may_not(device):
    request, _ = device.announcement(record(MODEL))
    for _ in range(2):  # the first answer was lost
        device.rules.check_reply(request)
        device.rules.note_announced(request, PushMessagesResponse(session_id="s"))
    with pytest.raises(RefusedError, match="answered before"):
        device.announce(record(MODEL + 1))


def test_reply_that_is_announced_again_may_have_no_more_bytes(device):
    """Flower keeps what came in the first session."""
    large = np.zeros(SPARE_BYTES, np.uint8)
    request, contents = device.announcement(record(large, large + 1))
    chunks = [item for item in contents.items() if len(item[1]) > SPARE_BYTES]
    for session, chunk in zip(("s", "t"), chunks[:1] * 2, strict=True):
        device.rules.check_reply(request)
        opened = PushMessagesResponse(session_id=session, objects_to_push=contents)
        assert device.rules.note_announced(request, opened) is opened
        device.push(*chunk, session=session)  # the second time it costs nothing
    with pytest.raises(RefusedError, match="no reply that this device has announced"):
        device.push(*chunks[0], session="s")
    with pytest.raises(RefusedError):
        device.push(*chunks[1], session="t")


def test_object_whose_id_is_no_hash_is_refused(device):
    request, _ = device.announcement(record(MODEL))
    request.message_object_trees[0].children[0].object_id = "x"
    with pytest.raises(RefusedError, match="no SHA-256"):
        device.rules.check_reply(request)


@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        ({"src_node_id": OTHER}, f"says that it comes from node {OTHER}"),
        ({"src_node_id": 1, "dst_node_id": 1}, "says that it comes from node 1"),
        ({"dst_node_id": OTHER}, f"addressed to node {OTHER}"),
        ({"reply_to_message_id": ""}, "answers no message"),
        ({"reply_to_message_id": "x" * 64}, "answers no message"),
        ({"run_id": RUN + 1}, "answers no message"),
        ({"message_id": "x" * 64}, "do not fit"),
        ({"group_id": "x" * 400_000}, r"its metadata have 40\d+ bytes, more than 65536"),
    ],
)
def test_invalid_announcement_is_refused(device, metadata, reason):
    with pytest.raises(RefusedError, match=reason):
        device.announce(record(MODEL), **metadata)


def test_reply_in_another_devices_name_is_refused(device):
    thief = Device(device.rules, OTHER)
    thief.message = device.message
    with pytest.raises(RefusedError, match=f"comes from node {NODE}"):
        thief.announce(record(MODEL))
    with pytest.raises(RefusedError, match="answers no message"):
        thief.announce(record(MODEL), src_node_id=OTHER)


def test_several_replies_or_none_in_a_request_are_refused(device):
    request, _ = device.announcement(record(MODEL))
    request.messages_list.append(request.messages_list[0])
    for wrong in (request, PushMessagesRequest(node=Node(node_id=NODE))):
        with pytest.raises(RefusedError, match="no reply, or several"):
            device.rules.check_reply(wrong)


def test_device_that_fetched_nothing_may_only_send_the_spare_bytes():
    rules = GateRules()
    device = Device(rules)
    rules._sizes.clear()
    with pytest.raises(RefusedError, match="more bytes"):
        device.reply(record(np.zeros(SPARE_BYTES, np.uint8), np.ones(100_000, np.uint8)))


@pytest.mark.parametrize(
    "content",
    [
        record(np.arange(200_000, dtype=np.float32)),
        RecordDict({"update": ConfigRecord({"payload": bytes(800_000)})}),
    ],
    ids=["array", "settings"],
)
def test_reply_that_is_larger_than_twice_the_message_is_refused(device, content):
    with pytest.raises(RefusedError, match="more bytes than this run's messages allow"):
        device.reply(content)


def test_operator_can_raise_the_limit():
    Device(GateRules(2_000_000)).reply(record(np.arange(200_000, dtype=np.float32)))


@pytest.mark.parametrize("numbers", [[7], [-1], [0, 1], [], ["0"], [0.5], None, [[0]]])
def test_array_that_names_other_chunks_than_it_has_is_refused(device, numbers):
    with pytest.raises(RefusedError, match=r"names others|malformed"):
        device.reply(forged_record(bytes(1000), numbers))


def test_object_that_is_sent_again_since_an_answer_was_lost_counts_once(device):
    for object_id, content in device.announce(record(MODEL)).items():
        for _ in range(10):
            device.push(object_id, content)


@pytest.mark.parametrize(
    "content", [b"", b"x", b"\0", b"Array  0\0{}", b"Array  x\0", b"a b c d\0"]
)
def test_malformed_object_is_refused(device, content):
    contents = device.announce(record(MODEL))
    with pytest.raises(RefusedError):
        device.push(next(iter(contents)), content)


def test_object_with_unannounced_children_is_refused(device):
    contents = device.announce(record(MODEL, MODEL + 1))
    (first, _), (second, content), *_ = contents.items()
    assert first != second
    parents = [key for key, part in contents.items() if part.startswith(b"Array ")]
    with pytest.raises(RefusedError, match="refers to others"):
        device.push(parents[0], contents[parents[1]])
    with pytest.raises(RefusedError, match="was not announced"):
        device.push("f" * 64, content)


def test_object_for_another_devices_reply_is_refused(device):
    object_id, content = next(iter(device.announce(record(MODEL)).items()))
    for changes in ({"node_id": OTHER}, {"session": "t"}):
        with pytest.raises(RefusedError, match="belongs to no reply"):
            device.push(object_id, content, **changes)


@pytest.mark.parametrize("session", ["s", ""], ids=["its session", "the last"])
def test_ended_upload_accepts_no_more_objects(device, session):
    object_id, content = next(iter(device.announce(record(MODEL)).items()))
    assert device.rules.end_upload(OTHER, "s") == (0, "")
    run_id, message_id = device.rules.end_upload(NODE, session)
    assert (run_id, len(message_id)) == (RUN, 64)
    assert device.rules.end_upload(NODE, session) == (0, "")
    with pytest.raises(RefusedError, match="belongs to no reply"):
        device.push(object_id, content)


def test_only_messages_that_a_device_was_given_may_be_confirmed(device):
    own = device.message.metadata.message_id
    device.rules.check_confirmed(
        ConfirmMessageReceivedRequest(node=Node(node_id=NODE), message_object_id=own)
    )
    for node_id, message_id in ((OTHER, own), (NODE, "f" * 64)):
        with pytest.raises(RefusedError, match="was not given"):
            device.rules.check_confirmed(
                ConfirmMessageReceivedRequest(
                    node=Node(node_id=node_id), message_object_id=message_id
                )
            )
