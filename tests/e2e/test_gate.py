"""A registered device with tools of its own, beside two honest devices, during a run.

Whatever it sends below Flower's SuperNode, the run ends with the honest devices' model.
"""

import re

import pytest
from flwr.app import ArrayRecord, Message, RecordDict
from flwr.app.message import make_message, remove_content_from_message
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.proto.fleet_pb2 import ActivateNodeRequest, PullMessagesRequest, PushMessagesRequest
from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest
from flwr.proto.node_pb2 import Node
from flwr.supercore.inflatable.inflatable_object import get_object_tree
from flwr.supercore.primitives.asymmetric import public_key_to_bytes

from fedavg_app.flower_internals import identify_server
from tests.e2e.test_access import node_ids, private_key, signed
from tests.support.deployment import Deployment
from tests.support.in_process import model_without
from tests.support.outsider import ask
from tests.support.run_folders import assert_model, only_folder, read_history

pytestmark = pytest.mark.slow
HONEST = 2


@pytest.fixture(scope="module")
def deployment(tmp_path_factory):
    with Deployment(tmp_path_factory.mktemp("deployment"), HONEST) as started:
        yield started


class Attacker:
    """Sends signed requests with the key of a device that has no SuperNode."""

    def __init__(self, deployment):
        self.deployment, self.key = deployment, None
        for words in (deployment.command("ssh-keygen"),
                      deployment.command("flwr supernode register")):  # fmt: skip
            deployment.run([word.replace("device-0", "attacker") for word in words])
        self.key = private_key(deployment, "attacker")
        public = public_key_to_bytes(self.key.public_key())
        honest = {int(node) for node in deployment.online_nodes()}
        (self.node_id,) = set(node_ids(deployment)) - honest
        activate = ActivateNodeRequest(public_key=public, heartbeat_interval=30)
        assert self.send(("activate-node", activate)) == [200]

    def send(self, *calls):
        """Send requests, given by (name, body); return their statuses."""
        requests = [
            {"path": f"/v1/fleet/{name}", "headers": signed(self.key),
             "body": body.SerializeToString()}
            for name, body in calls
        ]  # fmt: skip
        authority = self.deployment.folder / "certificates" / "ca.crt"
        answers = ask([], self.deployment.host, self.deployment.port, authority, requests)
        return [status for status, _ in answers]

    def push(self, metadata, **changes):
        """Return the call that announces a message with these metadata, changed."""
        reply = make_message(metadata, content=RecordDict({"arrays": ArrayRecord()}))
        reply.metadata.__dict__["_message_id"] = reply.object_id
        proto = message_to_proto(remove_content_from_message(reply))
        for key, value in changes.items():
            setattr(proto.metadata, key, value)
        return "push-messages", PushMessagesRequest(
            node=Node(node_id=self.node_id), messages_list=[proto],
            message_object_trees=[get_object_tree(reply)],
        )  # fmt: skip


def metadata_of_a_message(node_id, run_id, sender):
    identify_server(run_id)
    proto = message_to_proto(Message(RecordDict(), dst_node_id=node_id, message_type="train"))
    proto.metadata.run_id, proto.metadata.src_node_id = run_id, sender
    return message_from_proto(proto).metadata


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"strategy": "fedavg"}, marks=pytest.mark.long),
        {"strategy": "stc", "local-steps": 1, "batch-size": 20},
    ],
    ids=["fedavg", "stc"],
)
def test_device_with_its_own_tools_changes_no_bit_of_the_model(deployment, tmp_path, changes):
    attacker = Attacker(deployment) if not hasattr(deployment, "attacker") else deployment.attacker
    deployment.attacker = attacker
    keys = {
        "num-clients": HONEST, "seed": 5, "num-server-rounds": 6, "min-nodes": HONEST, **changes,
    }  # fmt: skip
    before = len(deployment.log("device-0"))
    run = deployment.start_app(**keys, **{"run-dir": str(tmp_path / "attacked")})
    deployment.wait_for(lambda: "ROUND 1]" in deployment.log("device-0")[before:])
    run_id = int(deployment.newest_run()["run-id"])
    honest = [int(node) for node in deployment.online_nodes() if int(node) != attacker.node_id]
    seen = re.findall(r"message \(ID: ([0-9a-f]{64})\)", deployment.log("device-0"))

    assert seen
    instruction = metadata_of_a_message(honest[0], run_id, attacker.node_id)
    large = {"src_node_id": 1, "dst_node_id": 1, "group_id": "x" * 400_000}
    forbidden = [
        attacker.push(instruction),  # to another device
        attacker.push(instruction, src_node_id=1),  # in the server's name
    ]
    for message_id in seen[-2:]:  # in another's name, by the id that its log shows
        forged = {"reply_to_message_id": message_id, "dst_node_id": 1}
        confirm = ConfirmMessageReceivedRequest(
            node=Node(node_id=attacker.node_id), run_id=run_id, message_object_id=message_id
        )
        forbidden += [
            attacker.push(instruction, src_node_id=honest[0], **forged),
            attacker.push(instruction, **forged), ("confirm-message-received", confirm),
        ]  # fmt: skip
    assert attacker.send(*forbidden) == [403] * len(forbidden)
    assert attacker.send(*[attacker.push(instruction, **large)] * 13) == [413] * 13
    others = PullMessagesRequest(node=Node(node_id=honest[0]))
    assert attacker.send(("pull-messages", others)) == [401]

    assert run.wait(200) == 0
    assert deployment.newest_run()["status"] == "finished:completed"
    folder = only_folder(tmp_path / "attacked")
    assert [line["rejected"] for line in read_history(folder)] == [{}] * 7
    assert f"refused push-messages of node {attacker.node_id}: it says that it comes from" in (
        deployment.log("superlink")
    )
    assert_model(folder, model_without([], tmp_path, **keys))
