"""Which replies of a device are received: messages and replies are Flower's own."""

import numpy as np
import pytest
from flwr.app import ConfigRecord, MetricRecord, RecordDict
from flwr.proto.fleet_pb2 import PushMessagesRequest
from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest, PushObjectRequest
from flwr.proto.node_pb2 import Node
from flwr.supercore.inflatable.inflatable_object import get_object_id

from deployment.superlink.reply_limits import RefusedError, Replies
from tests.support.gated_device import MODEL, NODE, RUN, Device, forged_record, record

OTHER = 6
LARGE = np.zeros(2**20, np.float32)  # a message of 4 MB
TOO_LARGE = "takes more than|unfolds to more than"


@pytest.fixture
def device():
    return Device()


@pytest.mark.parametrize(
    "content",
    [
        record(MODEL + 1),
        record(np.zeros((2, 10_000), np.float16)),
        RecordDict({"update": ConfigRecord({"payload": bytes(30_000), "num-examples": 3})}),
        RecordDict({"metrics": MetricRecord({f"metric-{n}": n / 7 for n in range(1000)})}),
        RecordDict({"metrics": MetricRecord({"losses": [n / 7 for n in range(10_000)]})}),
        RecordDict(),
    ],
    ids=["model", "zeros", "compressed", "metrics", "list", "empty"],
)
def test_reply_of_the_models_size_is_received(device, content):
    upload, contents = device.reply(content)
    assert {object_id: upload.content(object_id) for object_id in contents} == contents


def test_zeros_that_travel_as_the_same_chunk_twice_are_received():
    zeros = np.zeros(3 * 2**20, np.float32)  # two chunks of 5 MiB that are alike, and a rest
    Device(arrays=[zeros]).reply(record(zeros))


@pytest.mark.parametrize(("times", "fits"), [(2.0, True), (2.5, False)])
def test_reply_may_have_twice_the_bytes_of_the_message(times, fits):
    """The spare bytes are a quarter of the message's."""
    device = Device(arrays=[LARGE])
    content = record(np.ones(int(times * LARGE.size), np.float32))
    if fits:
        device.reply(content)
    else:
        with pytest.raises(RefusedError, match=TOO_LARGE):
            device.reply(content)


def test_limit_is_the_runs_largest_message_and_never_falls(monkeypatch):
    device = Device(arrays=[LARGE])
    replies, _ = device.replies, device.announce(record(MODEL))
    monkeypatch.setattr(replies._posted, "_most", 10)
    for number in range(10):  # the run's later messages are small
        small = Device(replies, OTHER, arrays=[MODEL[:1]], number=number)
    small.reply(record(np.ones(2 * LARGE.size, np.float32)))


def test_reply_may_be_announced_again_but_a_second_reply_may_not(device):
    request, contents = device.announcement(record(MODEL))
    first = device.replies.announce(request, {})
    assert set(first.objects_to_push) == set(contents)
    sent, *others = contents
    device.push(sent, contents[sent], first.session_id)
    again = device.replies.announce(request, {})  # the first answer was lost
    assert set(again.objects_to_push) == set(others)
    assert again.session_id == first.session_id
    with pytest.raises(RefusedError, match="answered before"):
        device.announce(record(MODEL + 1))


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


def test_message_with_other_metadata_than_announced_is_refused(device):
    """The run would read those of the object."""
    contents, session = device.announce(record(MODEL), group_id="13")
    with pytest.raises(RefusedError, match="not those that were announced"):
        device.push(session, contents[session], session)


def test_reply_in_another_devices_name_is_refused(device):
    thief = Device(device.replies, OTHER)
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
            device.replies.announce(wrong, {})


def test_operator_can_raise_the_limit():
    large = record(np.ones(2**19, np.float32))
    with pytest.raises(RefusedError, match=TOO_LARGE):
        Device().reply(large)
    Device(Replies(3_000_000)).reply(large)


@pytest.mark.parametrize("numbers", [[7], [-1], [0, 1], [], ["0"], [0.5], None, [[0]]])
def test_array_that_names_other_chunks_than_it_has_is_refused(device, numbers):
    with pytest.raises(RefusedError, match="malformed"):
        device.reply(forged_record(bytes(1000), numbers))


@pytest.mark.parametrize(
    "content",
    [
        forged_record(bytes(200_000), [0] * 100),
        RecordDict({f"r{n}": record(MODEL)["arrays"] for n in range(100)}),
    ],
    ids=["chunk", "record"],
)
def test_object_counts_as_often_as_it_is_named(device, content):
    with pytest.raises(RefusedError, match=TOO_LARGE):
        device.reply(content)


def test_what_was_sent_for_one_reply_does_not_count_for_another(device):
    """A chunk of a reply that was left incomplete is to be sent again with the next one."""
    content = forged_record(bytes(1000), [0] * 10_000)
    first, session = device.announce(content)
    chunk = next(name for name, part in first.items() if part.startswith(b"ArrayChunk"))
    device.push(chunk, first[chunk], session)
    second = Device(device.replies, number=2)
    _, session = second.announce(content)
    assert chunk in second.replies._receiving[NODE, session].upload.missing()
    with pytest.raises(RefusedError, match=TOO_LARGE):
        Device(device.replies, number=3).reply(content)


def test_object_that_is_sent_again_since_an_answer_was_lost_counts_once(device):
    contents, session = device.announce(record(MODEL))
    for object_id, content in contents.items():
        for _ in range(10):
            device.push(object_id, content, session)


def as_array(body):
    """Return an object of type Array whose body is not JSON of an array."""
    return b"Array  %d\0" % len(body) + body


@pytest.mark.parametrize(
    "content",
    [b"", b"x", b"\0", as_array(b"{}"), b"Array  x\0", b"a b c d\0", b"Array  9\0{}", b"X  0\0",
     as_array(b"[" * 1000), as_array(b"[[],[]" + b",[]" * 10**6 + b"]"),
     b"ArrayRecord " + b"," * 10**6 + b" 2\0{}"],
    ids=lambda content: content[:12],
)  # fmt: skip
def test_malformed_object_is_refused(device, content):
    request, _ = device.announcement(record(MODEL))
    request.message_object_trees[0].children.add().object_id = get_object_id(content)
    session = device.replies.announce(request, {}).session_id
    with pytest.raises(RefusedError, match=r"malformed object|refers to others"):
        device.push(get_object_id(content), content, session)


def test_object_with_unannounced_children_is_refused(device):
    request, contents = device.announcement(record(MODEL, MODEL + 1))
    array = next(part for part in contents.values() if part.startswith(b"Array "))
    request.message_object_trees[0].children.add().object_id = get_object_id(array)
    session = device.replies.announce(request, {}).session_id
    with pytest.raises(RefusedError, match="refers to others"):
        device.push(get_object_id(array), array, session)
    with pytest.raises(RefusedError, match="was not announced"):
        device.push("f" * 64, array, session)


def test_object_whose_id_is_not_its_hash_is_refused(device):
    (object_id, content), *_ = (found := device.announce(record(MODEL)))[0].items()
    with pytest.raises(RefusedError, match="not the hash"):
        device.push(object_id, content + b"x", found[1])


def test_object_for_another_devices_reply_is_refused(device):
    contents, session = device.announce(record(MODEL))
    object_id, content = next(iter(contents.items()))
    for node_id, name in ((OTHER, session), (NODE, "t")):
        with pytest.raises(RefusedError, match="belongs to no reply"):
            device.push(object_id, content, name, node_id=node_id)


def test_reply_with_the_id_of_another_devices_reply_disturbs_none(device):
    contents, session = device.announce(record(MODEL))
    thief = Device(device.replies, OTHER)
    request, _ = thief.announcement(record(MODEL), message_id=session)
    request.message_object_trees[0].object_id = session
    thief.replies.announce(request, {})
    for object_id, content in contents.items():
        given = device.push(object_id, content, session)
    assert given.upload.is_complete


def test_reply_that_is_over_accepts_no_more_objects(device):
    contents, session = device.announce(record(MODEL))
    object_id, content = next(iter(contents.items()))
    device.push(object_id, content, session).end()
    with pytest.raises(RefusedError, match="belongs to no reply"):
        device.push(object_id, content, session)
    with pytest.raises(RefusedError, match="answered before"):
        device.announce(record(MODEL))


def test_only_messages_that_a_device_was_given_may_be_confirmed(device):
    own = device.message.metadata.message_id
    for node_id, message_id in ((NODE, own), (OTHER, own), (NODE, "f" * 64)):
        request = ConfirmMessageReceivedRequest(
            node=Node(node_id=node_id), message_object_id=message_id
        )
        if (node_id, message_id) == (NODE, own):
            device.replies.check_confirmed(request)
            continue
        with pytest.raises(RefusedError, match="was not given"):
            device.replies.check_confirmed(request)


def test_announcement_may_be_as_long_as_the_runs_messages_have_objects():
    """So that what is longer is refused before it is read."""
    for count in (1, 1000):
        device = Device(arrays=[np.array([n]) for n in range(count)])
        request, _ = device.announcement(record(*(np.array([n + 1]) for n in range(2 * count))))
        length = request.ByteSize()
        most = device.replies.most_announced(NODE)
        assert length < most < 2 * length + 100_000
        assert device.replies.most_announced(OTHER) < 100_000


def test_reply_that_is_large_is_kept_in_a_file_without_a_name(tmp_path):
    device = Device(Replies(folder=str(tmp_path)), arrays=[LARGE])
    upload, contents = device.reply(record(LARGE + 1))
    assert not [*tmp_path.iterdir()]
    assert upload._file._rolled
    assert {object_id: upload.content(object_id) for object_id in contents} == contents


def test_object_that_could_not_be_stored_may_be_sent_again(device, monkeypatch):
    contents, session = device.announce(record(MODEL))
    request = PushObjectRequest(node=Node(node_id=NODE), session_id=session)
    upload = device.replies.receiving(request).upload

    def no_space(content):
        raise OSError("No space left on device")

    with monkeypatch.context() as full:
        full.setattr(upload._file, "write", no_space)
        for item in contents.items():
            with pytest.raises(OSError, match="No space"):
                upload.take(*item)
    assert not upload.is_complete
    for item in contents.items():
        upload.take(*item)
    assert {object_id: upload.content(object_id) for object_id in contents} == contents
