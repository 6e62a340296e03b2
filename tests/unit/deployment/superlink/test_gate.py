"""The gate as an ASGI app: what it passes on, refuses, reports to the run, and counts."""

import asyncio
import json
import string
from base64 import b64decode, b64encode
from datetime import UTC, datetime, timedelta
from functools import cache

import numpy as np
import pytest
from flwr.app import Error, Message, RecordDict
from flwr.proto import fleet_pb2 as fleet
from flwr.proto.message_pb2 import PushObjectRequest, PushObjectResponse
from flwr.proto.node_pb2 import Node
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.primitives import asymmetric
from sqlalchemy.exc import OperationalError

from deployment.superlink.deliveries import Deliveries
from deployment.superlink.gate import CONCURRENT, MAX_OBJECT_BYTES, Gate
from deployment.superlink.monitor import LOGGED, Monitor
from deployment.superlink.reply_limits import Replies
from tests.support.gated_device import NODE, Device, as_sent, forged_record, record

PULL, PUSH = "pull-messages", "push-messages"
ALPHABET = f"{string.ascii_uppercase}{string.ascii_lowercase}{string.digits}+/".encode()


async def respond(send, status=200, content=b""):
    await send({"type": "http.response.start", "status": status, "headers": []})
    await send({"type": "http.response.body", "body": content})


class SuperLink:
    """Answers every request with the next of the given answers, and keeps what it was asked."""

    def __init__(self, *answers):
        self.answers, self.asked = list(answers), []

    async def __call__(self, scope, receive, send):
        message = await receive()
        assert dict(scope["headers"])[b"content-length"] == str(len(message["body"])).encode()
        await asyncio.sleep(0)  # others' requests come in between
        self.asked.append((scope["path"].rpartition("/")[2], message["body"]))
        await respond(send, *self.answers.pop(0))


@cache
def keys(name):
    return asymmetric.generate_key_pairs()


def signed(name, age=0):
    """Return the headers with which a device of that name signs its requests."""
    private, public = keys(name)
    now = (datetime.now(UTC) - timedelta(seconds=age)).isoformat()
    return [
        (b"flwr-public-key", b64encode(asymmetric.public_key_to_bytes(public))),
        (b"flwr-signature", b64encode(asymmetric.sign_message(private, now.encode()))),
        (b"flwr-timestamp", now.encode()),
    ]


def request(name, length, *names, path=None):
    """Return the scope of a request with a body of that length, signed by these devices.

    Headers may take the place of a device's name.
    """
    signatures = [signed(name) if isinstance(name, str) else name for name in names]
    credentials = [header for headers in signatures for header in headers]
    headers = [(b"content-length", str(length).encode()), *credentials]
    path = path or f"/v1/fleet/{name}"
    return {"type": "http", "method": "POST", "path": path, "headers": headers}


def ask(gate, name, body=b"", *names, path=None):
    """Return the status and the content of the gate's answer."""
    return asyncio.run(answer(gate, name, body, *names, path=path))


async def answer(gate, name, body, *names, path=None):
    sent = []

    async def receive():
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message):
        sent.append(message)

    await gate(request(name, len(body), *(names or ["device"]), path=path), receive, send)
    await asyncio.gather(*gate.handing_over)
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent)


@pytest.fixture
def device():
    return Device()


def make_gate(superlink, replies=None):
    monitor = Monitor()
    return Gate(superlink, replies or Replies(), monitor, Deliveries()), monitor


OPENED = (200, fleet.PushMessagesResponse(session_id="s").SerializeToString())
STORED = (200, PushObjectResponse(stored=True).SerializeToString())


def given(device, *answers, status=200):
    """Return a gate through which a device got its message, its monitor and the SuperLink.

    These are the SuperLink's further answers.
    """
    request = fleet.PullMessagesRequest(node=Node(node_id=NODE)).SerializeToString()
    content = device.given.SerializeToString()
    superlink = SuperLink((status, content), *answers)
    gate, monitor = make_gate(superlink, device.replies if status == 200 else None)
    assert ask(gate, PULL, request) == (status, content)
    return gate, monitor, superlink


def announced(gate, announcement):
    """Announce a reply; return what the gate asks for."""
    status, content = ask(gate, PUSH, announcement.SerializeToString())
    assert status == 200
    return fleet.PushMessagesResponse.FromString(content)


def push_of(announcement, object_id, content):
    """Return the request that uploads an object of the reply announced."""
    run_id = announcement.messages_list[0].metadata.run_id
    return PushObjectRequest(
        node=Node(node_id=NODE), run_id=run_id, object_id=object_id, object_content=content,
        session_id=announcement.messages_list[0].metadata.message_id,
    ).SerializeToString()  # fmt: skip


def test_message_that_the_superlink_refused_to_give_does_not_count(device):
    gate, _, superlink = given(device, status=401)
    announcement, _ = device.announcement(record())
    status, content = ask(gate, PUSH, announcement.SerializeToString())
    assert status == 403
    reason = f"refused: it is not signed with the key of node {NODE}"
    assert json.loads(content) == {"detail": reason}
    assert len(superlink.asked) == 1


def too_many_objects(device):
    announcement, _ = device.announcement(record(*(np.array([n]) for n in range(60))))
    return announcement.SerializeToString()


def long_error(device):
    """Announce the error of a client whose exception has a text of 66 kB."""
    proto, tree, _ = as_sent(Message(Error(0, "x" * 66_000), reply_to=device.message))
    return fleet.PushMessagesRequest(
        node=Node(node_id=NODE), messages_list=[proto], message_object_trees=[tree]
    ).SerializeToString()


def wrong_sender(device):
    return device.announcement(record(), src_node_id=1)[0].SerializeToString()


@pytest.mark.parametrize(
    ("push", "status", "reason"),
    [
        (too_many_objects, 403, "124 objects, at most 78 are expected"),
        (long_error, 403, "its metadata have 66"),
        (wrong_sender, 403, "it says that it comes from node 1"),
        (lambda _: b"\xff" * 20, 403, "DecodeError: "),
        (lambda _: bytes(2**20), 413, "push-messages of 1048576 bytes, at most 71"),
    ],
    ids=["objects", "error", "sender", "malformed", "body"],
)
def test_refused_reply_reaches_the_run_as_an_error_with_the_reason(device, push, status, reason):
    gate, monitor, superlink = given(device, OPENED, STORED)
    assert ask(gate, PUSH, push(device))[0] == status
    assert monitor.refusals == {(NODE, PUSH): 1}
    (_, error), (_, upload) = superlink.asked[1:]
    sent = sent_error(error, upload)
    reply = inflate_object_from_contents(sent.object_id, {sent.object_id: sent.object_content})
    assert isinstance(reply, Message)
    assert reply.metadata.src_node_id == NODE
    assert reply.metadata.reply_to_message_id == device.message.metadata.message_id
    assert reply.error.reason.startswith(f"refused by the SuperLink's gate: {reason}")


def sent_error(announcement, upload):
    """Return the object of an error's upload, which belongs to that announcement."""
    message = fleet.PushMessagesRequest.FromString(announcement).messages_list[0]
    sent = PushObjectRequest.FromString(upload)
    assert sent.object_id == message.metadata.message_id
    assert sent.session_id == "s"
    return sent


def test_reply_is_handed_over_once_all_of_it_has_come(device):
    announcement, contents = device.announcement(record(np.zeros(3)))
    opened = fleet.PushMessagesResponse(session_id="s", objects_to_push=[*contents][1:])
    gate, monitor, superlink = given(
        device, (200, opened.SerializeToString()), *[STORED] * (len(contents) - 1)
    )
    assert set(announced(gate, announcement).objects_to_push) == set(contents)
    first, *others = contents.items()
    assert ask(gate, "push-object", push_of(announcement, *first)) == STORED
    again = announced(gate, announcement)  # the answer was lost
    assert set(again.objects_to_push) == {key for key, _ in others}
    assert len(superlink.asked) == 1
    for item in others:
        assert ask(gate, "push-object", push_of(announcement, *item)) == STORED
    (_, body), *uploads = superlink.asked[1:]
    assert body == announcement.SerializeToString()
    sent = [PushObjectRequest.FromString(upload) for _, upload in uploads]
    assert {one.object_id: one.object_content for one in sent} == dict(others)
    assert {one.session_id for one in sent} == {"s"}
    assert device.replies.is_finished(device.message.metadata.message_id)
    assert monitor.replies == {NODE: 2}
    assert ask(gate, "push-object", push_of(announcement, *first)) == STORED  # an answer was lost
    assert not monitor.refusals


@pytest.mark.parametrize("failure", [(500, b""), (200, PushObjectResponse().SerializeToString())])
def test_run_gets_an_error_instead_of_a_reply_that_could_not_be_stored(device, failure):
    announcement, contents = device.announcement(record(np.zeros(3)))
    opened = fleet.PushMessagesResponse(session_id="s", objects_to_push=contents)
    gate, _, superlink = given(device, (200, opened.SerializeToString()), failure, OPENED, STORED)
    announced(gate, announcement)
    for item in contents.items():
        ask(gate, "push-object", push_of(announcement, *item))
    sent = sent_error(*(body for _, body in superlink.asked[3:]))
    assert b"could not be stored" in sent.object_content
    assert ask(gate, "", path="/health")[0] == 503  # the disk may be full


def test_second_reply_does_not_replace_the_first(device):
    gate, _, superlink = given(device)
    first, _ = device.announcement(record(np.zeros(3)))
    announced(gate, first)
    for push in (too_many_objects(device), b"\xff" * 20):
        assert ask(gate, PUSH, push)[0] == 403
    assert len(superlink.asked) == 1
    assert announced(gate, first).objects_to_push


@pytest.mark.parametrize(
    ("content", "status", "reason"),
    [(bytes(MAX_OBJECT_BYTES), 413, b"push-object of"), (b"x", 403, b"not the hash of")],
)
def test_reply_of_which_an_object_is_refused_becomes_an_error(device, content, status, reason):
    """Because it is too large, or is not what was announced."""
    gate, _, superlink = given(device, OPENED, STORED)
    announcement, contents = device.announcement(record(np.zeros(3)))
    announced(gate, announcement)
    push = push_of(announcement, next(iter(contents)), content)
    assert ask(gate, "push-object", push)[0] == status
    assert reason in sent_error(*(body for _, body in superlink.asked[1:])).object_content
    assert ask(gate, "push-object", push_of(announcement, *next(iter(contents.items()))))[0] == 403


def test_reply_that_unfolds_to_too_much_becomes_an_error(device):
    gate, _, superlink = given(device, OPENED, STORED)
    announcement, contents = device.announcement(forged_record(bytes(200_000), [0] * 100))
    announced(gate, announcement)
    statuses = [
        ask(gate, "push-object", push_of(announcement, *item))[0] for item in contents.items()
    ]
    assert statuses == [200] * (len(contents) - 1) + [403]
    sent = sent_error(*(body for _, body in superlink.asked[1:]))
    assert b"the reply unfolds to more than" in sent.object_content


def spelled_otherwise():
    """Return a device's headers whose key's base64 ends in another character.

    It has bits that decoders ignore: here the two lowest.
    """
    (name, key), *others = signed("device")
    last = ALPHABET[ALPHABET.index(key[-2]) + 1]
    spelled = key[:-2] + bytes([last]) + b"="
    assert b64decode(spelled) == b64decode(key) != b""
    return [(name, spelled), *others]


@pytest.mark.parametrize("second", ["device", spelled_otherwise()], ids=["same", "spelling"])
def test_objects_that_come_at_once_are_received_one_after_the_other(device, second):
    announcement, contents = device.announcement(record(np.ones(110_000), np.zeros(110_000)))
    gate, _, _ = given(device, OPENED, STORED)
    announced(gate, announcement)
    pushes = [push_of(announcement, *item) for item in contents.items()]

    async def at_once():
        both = zip(pushes, ("device", second) * len(pushes), strict=False)
        return await asyncio.gather(*(answer(gate, "push-object", *push) for push in both))

    statuses = [status for status, _ in asyncio.run(at_once())]
    assert 403 in statuses  # the two models are more than twice the message
    assert statuses.count(200) <= len(pushes) - 1


def test_refusal_counts_for_the_node_of_the_key_whatever_node_the_request_names(device):
    gate, monitor, _ = given(device, OPENED, STORED)
    announcement, _ = device.announcement(record())
    announcement.node.node_id = NODE + 1
    assert ask(gate, PUSH, announcement.SerializeToString())[0] == 403
    assert set(monitor.refusals) == {(NODE, PUSH)}


def test_second_key_in_a_request_does_not_change_the_device(device):
    """Flower checks the first; the gate would file the request under the second."""
    gate, monitor, _ = given(device, OPENED, STORED)
    assert ask(gate, PUSH, b"\xff" * 20, "device", "another")[0] == 403
    assert set(monitor.refusals) == {(NODE, PUSH)}


def without_signature(name):
    """Return what somebody sends who has a device's public key and a key of their own."""
    return [signed(name)[0], *signed("thief")[1:]]


def test_request_with_a_public_key_but_no_signature_is_from_a_stranger(device):
    gate, monitor, _ = given(device)
    assert ask(gate, PUSH, b"", without_signature("device"))[0] == 403
    assert ask(gate, PUSH, b"", signed("device")[:1])[0] == 403
    assert monitor.refusals == {(0, PUSH): 2}


@pytest.mark.parametrize("age", [-10, 310])
def test_request_that_was_signed_at_another_time_is_from_a_stranger(device, age):
    gate, _, _ = given(device)
    announcement, _ = device.announcement(record())
    assert ask(gate, PUSH, announcement.SerializeToString(), signed("device", age))[0] == 403
    assert ask(gate, PUSH, announcement.SerializeToString(), signed("device", 290))[0] == 200


async def never(*_):
    await asyncio.Event().wait()


async def now():
    return {"type": "http.request", "body": b"", "more_body": False}


SENDS = [("push-object", 900_000, never), ("get-run", 9, never)]
READS = [("get-run", 0, now)]


async def while_slow(gate, who, kinds, *wanted):
    """Return the answer to a request while somebody sends, or reads, without end."""
    slow = [
        asyncio.create_task(gate(request(name, length, who), receive, never))
        for name, length, receive in kinds for _ in range(2 * CONCURRENT)
    ]  # fmt: skip
    await asyncio.sleep(0.05)
    found = await asyncio.wait_for(answer(gate, *wanted), 5)
    for task in slow:
        task.cancel()
    return found


def test_knowing_a_public_key_does_not_let_a_stranger_block_the_device(device):
    gate, _, _ = given(device)
    push = device.announcement(record(np.zeros(3)))[0].SerializeToString()
    found = asyncio.run(while_slow(gate, without_signature("device"), SENDS, PUSH, push))
    assert found[0] == 200


def test_request_whose_connection_is_lost_is_not_judged(device):
    gate, monitor, superlink = given(device)
    parts = [{"type": "http.request", "body": b"\xff", "more_body": True}]

    async def receive():
        return parts.pop() if parts else {"type": "http.disconnect"}

    asyncio.run(gate(request(PUSH, 9, "device"), receive, None))
    assert not monitor.refusals
    assert len(superlink.asked) == 1


def test_slow_strangers_do_not_block_a_device():
    async def superlink(scope, receive, send):
        await respond(send)

    gate, _ = make_gate(superlink)
    wanted = ("activate-node", b"", "other")
    assert asyncio.run(while_slow(gate, "stranger", [*SENDS, *READS], *wanted))[0] == 200


def test_refusals_of_each_device_are_logged_up_to_a_bound(caplog):
    monitor = Monitor()
    for node in (1, 2):
        for _ in range(LOGGED + 5):
            monitor.refused(node, PUSH, "why")
    assert [line.count("node 1") for line in caplog.messages].count(1) == LOGGED
    assert [line.count("node 2") for line in caplog.messages].count(1) == LOGGED


def test_device_that_was_activated_is_known_by_its_key(device):
    activated = fleet.ActivateNodeResponse(node_id=NODE).SerializeToString()
    gate, monitor = make_gate(SuperLink((200, activated)))
    assert ask(gate, "activate-node") == (200, activated)
    assert ask(gate, PUSH, b"")[0] == 403
    assert set(monitor.refusals) == {(NODE, PUSH)}


@pytest.mark.parametrize("name", [PULL, "get-run", PUSH])
def test_body_that_is_too_large_for_its_request_is_refused_unread(name):
    gate, _ = make_gate(SuperLink())
    assert ask(gate, name, bytes(5 * 2**20))[0] == 413


def test_stranger_may_not_send_what_is_as_large_as_an_object():
    gate, _ = make_gate(SuperLink())
    assert ask(gate, "push-object", bytes(2**20), "stranger")[0] == 413


def test_concurrent_requests_of_a_key_are_bounded_and_do_not_delay_others():
    running, most, release = 0, 0, asyncio.Event()

    async def superlink(scope, receive, send):
        nonlocal running, most
        busy = (
            dict(scope["headers"])[b"flwr-public-key"] == dict(signed("busy"))[b"flwr-public-key"]
        )
        if busy and scope["path"].endswith("get-run"):
            running += 1
            most = max(most, running)
            await release.wait()
        await respond(send)

    gate, _ = make_gate(superlink)

    async def scenario():
        pull = fleet.PullMessagesRequest(node=Node(node_id=NODE)).SerializeToString()
        await answer(gate, PULL, pull, "busy")
        many = [asyncio.create_task(answer(gate, "get-run", b"", "busy")) for _ in range(20)]
        await asyncio.sleep(0.05)
        await asyncio.wait_for(answer(gate, "activate-node", b"", "other"), 5)
        assert most == CONCURRENT
        release.set()
        await asyncio.gather(*many)

    asyncio.run(scenario())


def test_metrics_have_prometheus_format_and_count_by_node(device):
    gate, monitor, _ = given(device)
    announcement, _ = device.announcement(record(), group_id="99")
    ask(gate, PUSH, announcement.SerializeToString())
    second, _ = device.announcement(record(np.zeros(3)))
    ask(gate, PUSH, second.SerializeToString(), "stranger")  # counts for no node, not NODE
    status, content = ask(gate, "", path="/metrics")
    lines = content.decode().splitlines()
    assert status == 200
    assert "fedavg_nodes_online 1" in lines
    assert 'fedavg_run{run_id="7"} 12' in lines
    # A query is in no round.
    query, _, _ = as_sent(Message(RecordDict(), dst_node_id=NODE, message_type="query"))
    for run, server_round in ((7, 12), (8, 0)):
        query.metadata.run_id = run
        monitor.asked(NODE, fleet.PullMessagesResponse(messages_list=[query]))
        line = f'fedavg_run{{run_id="{run}"}} {server_round}\n'
        assert line.encode() in ask(gate, "", path="/metrics")[1]
    assert f'fedavg_replies_total{{node="{NODE}"}} 1' in lines
    assert 'fedavg_refused_total{node="0",request="push-messages"} 1' in lines
    values = [line.rpartition(" ") for line in lines if not line.startswith("#")]
    assert all(float(value) >= 0 for _, _, value in values)


def test_requests_with_a_wrong_signature_are_counted_by_node_or_address(caplog):
    gate, _ = make_gate(SuperLink(*[(401, b"")] * 3, (200, b"")))
    for _ in range(2):
        ask(gate, "send-node-heartbeat")
    assert [record.message for record in caplog.records if "is not signed" in record.message] == [
        "send-node-heartbeat of unknown is not signed by a registered key of its node"
    ]
    _, content = ask(gate, "", path="/metrics")
    assert b'fedavg_unauthorised_total{source="unknown"} 2' in content


def test_health_is_bad_after_a_request_that_the_superlink_could_not_answer(monkeypatch):
    gate, monitor = make_gate(SuperLink((200, b"ok"), (500, b""), (200, b"ok")))
    assert ask(gate, "", path="/health") == (200, b"ok")
    ask(gate, "send-node-heartbeat")
    status, content = ask(gate, "", path="/health")
    assert status == 503
    assert b"disk full" in content
    monitor.last_failure -= 61
    assert ask(gate, "", path="/health") == (200, b"ok")


@pytest.mark.parametrize(
    "error", [OSError("No space left"), OperationalError("UPDATE", {}, Exception("disk is full"))]
)
def test_request_that_cannot_be_stored_is_to_be_repeated_and_logged_once(error, caplog):
    """A SuperNode repeats what gets 503; one whose heartbeat gets 500 sends none any more."""

    async def superlink(scope, receive, send):
        raise error

    gate, _ = make_gate(superlink)
    for _ in range(3):
        assert ask(gate, "send-node-heartbeat")[0] == 503
    assert ask(gate, "", path="/health")[0] == 503
    (line,) = [record.message for record in caplog.records if "cannot answer" in record.message]
    assert "\n" not in line
    assert "No space left" in line or "disk is full" in line


def test_health_is_bad_after_a_request_that_raised_inside_the_superlink():
    async def superlink(scope, receive, send):
        raise KeyError("a bug")

    gate, _ = make_gate(superlink)
    with pytest.raises(KeyError):
        ask(gate, "send-node-heartbeat")
    assert ask(gate, "", path="/health")[0] == 503
