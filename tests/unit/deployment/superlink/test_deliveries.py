"""What devices and runs are told while messages and replies are on their way."""

import asyncio

import numpy as np
import pytest
from flwr.proto import fleet_pb2 as fleet
from flwr.proto import runtime_pb2 as runtime
from flwr.proto.message_pb2 import PushObjectRequest, PushObjectResponse
from flwr.proto.node_pb2 import Node

from deployment.superlink import deliveries as module
from deployment.superlink import reply_limits as replies_module
from deployment.superlink.deliveries import Deliveries, RunRequests
from deployment.superlink.gate import Gate
from deployment.superlink.monitor import Monitor
from deployment.superlink.reply_limits import Replies
from tests.support.gated_device import NODE, Device, as_sent, record
from tests.unit.deployment.superlink.test_gate import OPENED, SuperLink, answer

STORED = PushObjectResponse(stored=True).SerializeToString()


@pytest.fixture
def clock(clock, monkeypatch):
    clock.now = 1000.0
    for part in (module, replies_module):
        monkeypatch.setattr(part, "time", clock)
    return clock


class Link:
    """A gate and what it knows of the run, before a SuperLink with the given answers."""

    def __init__(self, *answers):
        self.superlink, replies, deliveries = SuperLink(*answers), Replies(), Deliveries()
        inner = RunRequests(self.superlink, deliveries, replies)
        self.gate = Gate(inner, replies, Monitor(), deliveries)

    def ask(self, name, request, path=None):
        return asyncio.run(answer(self.gate, name, request.SerializeToString(), path=path))

    def of_run(self, name, request):
        return self.ask(name, request, f"/v1/runtime/{name}")

    def look(self):
        """Return how many messages a device is given; None if the SuperLink was not asked."""
        before = len(self.superlink.asked)
        status, content = self.ask("pull-messages", PULL)
        assert status == 200
        given = len(fleet.PullMessagesResponse.FromString(content).messages_list)
        return given if len(self.superlink.asked) > before else None


PULL = fleet.PullMessagesRequest(node=Node(node_id=NODE))
EMPTY = (200, b"")


def posted(device, missing):
    """Return the run's request that posts a device's message, and the SuperLink's answer."""
    proto, tree, contents = as_sent(device.message)
    request = runtime.PushAppMessagesRequest(messages_list=[proto], message_object_trees=[tree])
    opened = runtime.PushAppMessagesResponse(session_id="s", objects_to_push=missing)
    given = fleet.PullMessagesResponse(messages_list=[proto], message_object_trees=[tree])
    return request, (200, opened.SerializeToString()), (200, given.SerializeToString()), contents


def test_device_without_a_message_is_answered_without_the_superlink_for_a_while(clock):
    link = Link(EMPTY, EMPTY)
    assert [link.look() for _ in range(3)] == [0, None, None]
    clock.now += module.NOTHING_SECONDS
    assert link.look() == 0


def test_message_is_given_once_all_of_its_objects_are_there():
    device = Device()
    missing = [*as_sent(device.message)[2]][:2]
    request, opened, given, contents = posted(device, missing)
    link = Link(EMPTY, opened, (200, STORED), (200, STORED), given)
    assert link.look() == 0
    link.of_run("push-messages", request)
    assert link.look() is None
    for name in missing:
        assert link.look() is None
        push = PushObjectRequest(object_id=name, object_content=contents[name])
        link.of_run("push-object", push)
    assert link.look() == 1
    assert link.look() is None  # it was the only one


def test_device_is_given_each_of_two_messages():
    request, opened, given, _ = posted(Device(), [])
    link = Link(EMPTY, opened, opened, given, given)
    assert link.look() == 0
    for _ in range(2):
        link.of_run("push-messages", request)
    assert [link.look() for _ in range(3)] == [1, 1, None]


def test_messages_of_a_device_that_never_looks_do_not_pile_up():
    request, opened, given, _ = posted(Device(), [])
    link = Link(EMPTY, *[opened] * 100, *[given] * module.UNSEEN)
    assert link.look() == 0
    for _ in range(100):
        link.of_run("push-messages", request)
    assert [link.look() for _ in range(module.UNSEEN + 1)] == [1] * module.UNSEEN + [None]


def test_device_of_a_run_that_died_while_it_uploaded_asks_the_superlink_again(clock):
    device = Device()
    request, opened, given, contents = posted(device, [])
    opened = runtime.PushAppMessagesResponse(objects_to_push=[*contents]).SerializeToString()
    link = Link(EMPTY, (200, opened), (200, STORED), given)
    assert link.look() == 0
    link.of_run("push-messages", request)
    clock.now += module.UPLOAD_SECONDS - 1
    name, content = next(iter(contents.items()))
    link.of_run("push-object", PushObjectRequest(object_id=name, object_content=content))
    clock.now += module.UPLOAD_SECONDS - 1
    assert link.look() is None  # it is alive
    clock.now += 1
    assert link.look() == 1


def test_message_that_is_posted_during_a_look_is_not_missed():
    """The SuperLink found nothing, and answers after the run has posted."""
    deliveries = Deliveries()
    assert not deliveries.has_nothing(NODE)
    request, *_ = posted(Device(), [])
    deliveries.posting(request)
    deliveries.posted(request, [])
    deliveries.given(NODE, 0)
    assert not deliveries.has_nothing(NODE)


def test_request_of_a_stranger_in_a_devices_name_is_passed_to_the_superlink():
    link = Link(EMPTY, (401, b""))
    assert link.look() == 0
    request = PULL.SerializeToString()
    assert asyncio.run(answer(link.gate, "pull-messages", request, "stranger"))[0] == 401
    assert len(link.superlink.asked) == 2


def replying():
    """Return a link whose device has announced a reply, the run's request for it, and pushes."""
    device = Device()
    announcement, contents = device.announcement(record(np.zeros(3)))
    opened = fleet.PushMessagesResponse(session_id="s", objects_to_push=contents)
    answers = [(200, device.given.SerializeToString()), (200, opened.SerializeToString())]
    link = Link(*answers, *[(200, STORED)] * len(contents), EMPTY, EMPTY)
    link.ask("pull-messages", PULL)
    link.ask("push-messages", announcement)
    wanted = runtime.PullAppMessagesRequest(message_ids=[device.message.metadata.message_id])
    metadata = announcement.messages_list[0].metadata
    pushes = [
        PushObjectRequest(
            node=Node(node_id=NODE), run_id=metadata.run_id, object_id=name,
            object_content=content, session_id=metadata.message_id,
        )
        for name, content in contents.items()
    ]  # fmt: skip
    return link, wanted, pushes


def asked_for(link, wanted):
    """Return the messages that the SuperLink is asked for in a run's request for these."""
    before = len(link.superlink.asked)
    assert link.of_run("pull-messages", wanted)[0] == 200
    new = link.superlink.asked[before:]
    return [
        name
        for _, body in new
        for name in runtime.PullAppMessagesRequest.FromString(body).message_ids
    ]


def test_run_is_given_a_reply_once_all_of_its_objects_are_there():
    link, wanted, pushes = replying()
    for push in pushes:
        assert asked_for(link, wanted) == []
        assert link.ask("push-object", push)[0] == 200
    assert asked_for(link, wanted) == list(wanted.message_ids)


def test_run_gets_an_error_instead_of_a_reply_whose_upload_stopped(clock):
    link, wanted, pushes = replying()
    link.superlink.answers[0] = OPENED
    link.ask("push-object", pushes[0])
    assert asked_for(link, wanted) == []
    clock.now += replies_module.STALLED_SECONDS + 1
    before = len(link.superlink.asked)
    link.of_run("pull-messages", wanted)
    error, upload, look = link.superlink.asked[before:]
    assert [name for name, _ in (error, upload, look)] == [
        "push-messages", "push-object", "pull-messages",
    ]  # fmt: skip
    assert b"its upload has stopped" in PushObjectRequest.FromString(upload[1]).object_content
    assert link.ask("push-object", pushes[1])[0] == 403


def test_unanswered_messages_are_looked_for_at_intervals(clock):
    """They may have expired: then the SuperLink has an error in the reply's place."""
    link = Link(EMPTY, EMPTY)
    one, two = (runtime.PullAppMessagesRequest(message_ids=ids) for ids in (["a"], ["b", "c"]))
    assert [asked_for(link, wanted) for wanted in (one, one, two)] == [["a"], [], []]
    clock.now += module.LOOK_SECONDS
    assert asked_for(link, two) == ["b", "c"]


def test_number_of_devices_that_fetch_at_a_time_is_bounded(clock):
    deliveries = Deliveries()
    for node in range(module.FETCHING):
        assert not deliveries.has_nothing(node)
        deliveries.given(node, 1)
    assert deliveries.has_nothing(100)
    deliveries.fetched(3)
    assert not deliveries.has_nothing(100)
    deliveries.given(100, 1)
    assert deliveries.has_nothing(101)
    clock.now += module.FETCH_SECONDS  # those that died meanwhile hold up nobody
    assert not deliveries.has_nothing(101)
