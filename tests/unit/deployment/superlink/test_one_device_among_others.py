"""Whatever one device sends, in any order: the others' replies arrive, and its own stay in bounds.

The objects are in Flower's own store, behind the gate as on a server.
"""

import asyncio
from unittest.mock import patch

import numpy as np
import pytest
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.proto import fleet_pb2 as fleet
from flwr.proto import message_pb2 as message
from flwr.proto import runtime_pb2 as runtime
from flwr.proto.node_pb2 import Node
from flwr.supercore.inflatable.inflatable_object import iterate_object_tree
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.object_store.in_memory_object_store import InMemoryObjectStore
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from deployment.superlink import reply_limits as replies_module
from deployment.superlink.deliveries import Deliveries, RunRequests
from deployment.superlink.gate import Gate
from deployment.superlink.monitor import Monitor
from deployment.superlink.reply_limits import Replies
from deployment.superlink.unfolded_size import Objects, Part
from fedavg_app.flower_internals import identify_server
from tests.support.gated_device import RUN, as_sent, forged_record, record
from tests.unit.deployment.superlink.test_gate import answer, respond

HOSTILE, OTHERS = 5, (6, 7)
MODEL = np.arange(5000, dtype=np.float32)
SPARE_BYTES = 8000  # little beside the model, so that a limit that falls is seen
MOST = 2 * (MODEL.nbytes + 10_000) + SPARE_BYTES


class Store:
    """A SuperLink that keeps no database: Flower's store of objects, and messages by node."""

    def __init__(self):
        self.objects = InMemoryObjectStore()
        self.waiting, self.replies = {}, {}

    async def __call__(self, scope, receive, send):
        api, name = scope["path"].split("/")[-2:]
        body = (await receive())["body"]
        try:
            found = getattr(self, f"{api}_{name}".replace("-", "_"), self.none)(body)
        except ValueError:  # of the store
            await respond(send, 500)
            return
        await respond(send, 200, found.SerializeToString())

    def none(self, _):
        return fleet.ActivateNodeResponse()

    def fleet_activate_node(self, body):
        key = fleet.ActivateNodeRequest.FromString(body).public_key
        return fleet.ActivateNodeResponse(node_id=int(key))

    def fleet_pull_messages(self, body):
        node = fleet.PullMessagesRequest.FromString(body).node.node_id
        given = self.waiting.get(node, [])[:1]
        self.waiting[node] = self.waiting.get(node, [])[1:]
        return fleet.PullMessagesResponse(
            messages_list=given,
            message_object_trees=[self.objects.get_object_tree(one.metadata.message_id)
                                  for one in given],
        )  # fmt: skip

    def fleet_pull_object(self, body):
        content = self.objects.get(message.PullObjectRequest.FromString(body).object_id)
        return message.PullObjectResponse(
            object_found=content is not None, object_available=bool(content),
            object_content=content or b"",
        )  # fmt: skip

    def fleet_confirm_message_received(self, body):
        self.objects.delete(
            message.ConfirmMessageReceivedRequest.FromString(body).message_object_id
        )
        return message.ConfirmMessageReceivedResponse()

    def fleet_push_messages(self, body):
        request = fleet.PushMessagesRequest.FromString(body)
        missing = self.objects.preregister(RUN, request.message_object_trees[0])
        metadata = request.messages_list[0].metadata
        self.replies[metadata.reply_to_message_id] = metadata
        return fleet.PushMessagesResponse(session_id="s", objects_to_push=missing)

    def fleet_push_object(self, body):
        request = message.PushObjectRequest.FromString(body)
        self.objects.put(request.object_id, request.object_content)
        return message.PushObjectResponse(stored=True)

    runtime_push_object = fleet_push_object

    def runtime_push_messages(self, body):
        request = runtime.PushAppMessagesRequest.FromString(body)
        missing = []
        for one, tree in zip(request.messages_list, request.message_object_trees, strict=True):
            self.waiting.setdefault(one.metadata.dst_node_id, []).append(one)
            missing += self.objects.preregister(RUN, tree)
        return runtime.PushAppMessagesResponse(objects_to_push=dict.fromkeys(missing))


class OneDeviceAmongOthers(RuleBasedStateMachine):
    """The rules are what the hostile device does, and what happens around it meanwhile."""

    @initialize()
    def run_begins(self):
        identify_server(RUN)
        self.spare = patch.object(replies_module, "SPARE_BYTES", SPARE_BYTES)
        self.spare.start()
        self.store, self.replies = Store(), Replies()
        deliveries = Deliveries()
        inner = RunRequests(self.store, deliveries, self.replies)
        self.gate = Gate(inner, self.replies, Monitor(), deliveries)
        for node in (HOSTILE, *OTHERS):
            key = str(node).encode()
            activate = fleet.ActivateNodeRequest(public_key=key)
            assert self.ask(node, "activate-node", activate) == 200
        self.sent, self.pushes, self.round = {}, [], 0
        self.posts(record(MODEL))

    def ask(self, node, name, request, api="fleet"):
        """Return the status of the answer to a device's request, and keep its content."""
        path = f"/v1/{api}/{name}"
        body = request.SerializeToString()
        status, self.answered = asyncio.run(
            answer(self.gate, name, body, f"node {node}", path=path)
        )
        return status

    def posts(self, content):
        """The run posts messages with that content, and the devices are given them."""
        self.round += 1
        shared = RecordDict({**content, "config": ConfigRecord({"round": self.round})})
        messages = [
            Message(shared, dst_node_id=node, message_type="train") for node in (HOSTILE, *OTHERS)
        ]
        sent = [as_sent(one) for one in messages]
        request = runtime.PushAppMessagesRequest(
            messages_list=[proto for proto, _, _ in sent],
            message_object_trees=[tree for _, tree, _ in sent],
        )
        assert self.ask(0, "push-messages", request, "runtime") == 200
        contents = {key: part for _, _, parts in sent for key, part in parts.items()}
        for name in runtime.PushAppMessagesResponse.FromString(self.answered).objects_to_push:
            push = message.PushObjectRequest(object_id=name, object_content=contents[name])
            assert self.ask(0, "push-object", push, "runtime") == 200
        for one, node in zip(messages, (HOSTILE, *OTHERS), strict=True):
            self.sent[node] = one
            pull = fleet.PullMessagesRequest(node=Node(node_id=node))
            assert self.ask(node, "pull-messages", pull) == 200
        self.objects = [*sent[0][2]]

    def confirm(self, node):
        name = self.sent[node].metadata.message_id
        request = message.ConfirmMessageReceivedRequest(
            node=Node(node_id=node), message_object_id=name
        )
        assert self.ask(node, "confirm-message-received", request) == 200

    def announce(self, node, content, children=()):
        """Announce a reply, or its tree with more children; return what sends its objects."""
        proto, tree, contents = as_sent(Message(content, reply_to=self.sent[node]))
        for name in children:
            tree.children[0].children[0].children.add().object_id = name
        request = fleet.PushMessagesRequest(
            node=Node(node_id=node), messages_list=[proto], message_object_trees=[tree]
        )
        self.ask(node, "push-messages", request)
        return [
            message.PushObjectRequest(
                node=Node(node_id=node), run_id=RUN, session_id=proto.metadata.message_id,
                object_id=name, object_content=part,
            )
            for name, part in contents.items()
        ]  # fmt: skip

    @rule(small=st.booleans())
    def run_posts_again(self, small):
        self.posts(record(MODEL[:1] if small else MODEL))

    @rule(node=st.sampled_from(OTHERS))
    def another_confirms(self, node):
        self.confirm(node)

    @rule()
    def confirms(self):
        self.confirm(HOSTILE)

    @rule(number=st.integers(0, 9))
    def fetches(self, number):
        name = self.objects[number % len(self.objects)]
        request = message.PullObjectRequest(node=Node(node_id=HOSTILE), object_id=name)
        assert self.ask(HOSTILE, "pull-object", request) == 200

    @rule(
        content=st.sampled_from([
            record(MODEL), record(MODEL, -MODEL), forged_record(bytes(1000), [0] * 2000),
            record(), RecordDict({f"r{n}": record(MODEL)["arrays"] for n in range(9)}),
        ])
    )  # fmt: skip
    def announces(self, content):
        self.pushes = [*self.pushes[-8:], *self.announce(HOSTILE, content)]

    @rule(node=st.sampled_from(OTHERS))
    def announces_another_tree_for_what_others_will_send(self, node):
        self.announce(HOSTILE, self.reply_of(node), children=["a" * 64])

    @rule(data=st.data(), content=st.sampled_from([None, b"x", b"Array  0\0"]))
    def pushes(self, data, content):
        if self.pushes:
            push = data.draw(st.sampled_from(self.pushes))
            if content is not None:
                push = message.PushObjectRequest.FromString(push.SerializeToString())
                push.object_content = content
            self.ask(HOSTILE, "push-object", push)

    @rule()
    def pushes_the_rest(self):
        for push in self.pushes:
            self.ask(HOSTILE, "push-object", push)

    def reply_of(self, node):
        return record(MODEL * node, MODEL + node)  # twice the message

    def teardown(self):
        if not hasattr(self, "store"):
            return
        try:
            for node in OTHERS:
                self.arrives(node)
            self.stays_in_bounds()
        finally:
            self.spare.stop()

    def arrives(self, node):
        expected = self.reply_of(node)
        for push in self.announce(node, expected):
            assert self.ask(node, "push-object", push) == 200
        found = self.read(self.sent[node].metadata.message_id)
        assert found.content == expected
        assert found.metadata.src_node_id == node

    def stays_in_bounds(self):
        for name in self.store.replies:
            found = self.read(name)
            arrays = [
                array.data
                for records in (found.content.array_records.values() if found.has_content() else ())
                for array in records.values()
            ]
            assert sum(map(len, arrays)) <= MOST

    def read(self, name):
        """Return the reply to a message as the run reads it."""
        root = self.store.replies[name].message_id
        tree = self.store.objects.get_object_tree(root)
        names = [node.object_id for node in iterate_object_tree(tree)]
        contents = {one: self.store.objects.get(one) for one in names}
        return inflate_object_from_contents(root, contents, keep_object_contents=True)


def check(**options):
    settings_ = settings(
        max_examples=40, stateful_step_count=12, deadline=None, derandomize=True,
        suppress_health_check=list(HealthCheck), **options,
    )  # fmt: skip
    run_state_machine_as_test(OneDeviceAmongOthers, settings=settings_)


def find_out():
    with pytest.raises(AssertionError):
        check(phases=[Phase.generate], report_multiple_bugs=False)


def test_one_device_changes_nothing_for_others():
    check()


def of_what_devices_fetch(replies):
    """Return `Replies._limits` as it was: by the last sizes of objects that were fetched."""

    def limits(self, given):
        self._largest.clear()
        return replies(self, given)

    return limits


def test_limits_that_follow_what_devices_fetch_are_found_out(monkeypatch):
    """A device fetches its message's objects again after others confirmed theirs."""
    original = Store.fleet_pull_object

    def pull(self, body):
        found = original(self, body)
        name = message.PullObjectRequest.FromString(body).object_id
        for replies in fetched:
            size = len(found.object_content)
            replies._posted._sizes[name] = Part(size, [], {})
        return found

    fetched = []
    monkeypatch.setattr(Store, "fleet_pull_object", pull)
    monkeypatch.setattr(Replies, "_limits", of_what_devices_fetch(Replies._limits))
    begins = OneDeviceAmongOthers.run_begins

    def run_begins(self):
        begins(self)
        fetched[:] = [self.replies]

    monkeypatch.setattr(OneDeviceAmongOthers, "run_begins", run_begins)
    find_out()


def test_objects_that_count_once_however_often_they_are_named_are_found_out(monkeypatch):
    def size(self, object_id):
        part = self._sizes[object_id]
        return part.size + sum(map(self.size, part.names))

    monkeypatch.setattr(Objects, "size", size)
    find_out()
