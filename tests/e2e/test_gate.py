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
        status, _ = self.send(
            "activate-node", ActivateNodeRequest(public_key=public, heartbeat_interval=30)
        )
        assert status == 200

    def send(self, name, request):
        folder = self.deployment.folder / "certificates"
        parts = {"path": f"/v1/fleet/{name}", "headers": signed(self.key)}
        found = ask([], self.deployment.host, self.deployment.port, folder / "ca.crt",
                    [{**parts, "body": request.SerializeToString()}])  # fmt: skip
        return found[0]

    def push(self, metadata, **changes):
        """Announce a message with these metadata, changed; return the status."""
        reply = make_message(metadata, content=RecordDict({"arrays": ArrayRecord()}))
        reply.metadata.__dict__["_message_id"] = reply.object_id
        proto = message_to_proto(remove_content_from_message(reply))
        for key, value in changes.items():
            setattr(proto.metadata, key, value)
        request = PushMessagesRequest(
            node=Node(node_id=self.node_id), messages_list=[proto],
            message_object_trees=[get_object_tree(reply)],
        )  # fmt: skip
        return self.send("push-messages", request)[0]


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
    deployment.start_app(**keys, **{"run-dir": str(tmp_path / "attacked")})
    deployment.wait_for(lambda: "ROUND 1]" in deployment.log("device-0")[before:])
    run_id = int(deployment.newest_run()["run-id"])
    honest = [int(node) for node in deployment.online_nodes() if int(node) != attacker.node_id]
    log = deployment.log("device-0")
    seen = re.findall(r"message \(ID: ([0-9a-f]{64})\)", log)

    instruction = metadata_of_a_message(honest[0], run_id, attacker.node_id)
    assert attacker.push(instruction) == 403  # to another device
    assert attacker.push(instruction, src_node_id=1) == 403  # in the server's name
    for _ in range(13):  # large, to keep the database busy
        assert (
            attacker.push(instruction, src_node_id=1, dst_node_id=1, group_id="x" * 400_000) == 413
        )
    assert seen
    for message_id in seen[-2:]:  # in another's name, by the id that its log shows
        forged = {"reply_to_message_id": message_id, "dst_node_id": 1}
        assert attacker.push(instruction, src_node_id=honest[0], **forged) == 403
        assert attacker.push(instruction, **forged) == 403
        confirm = ConfirmMessageReceivedRequest(
            node=Node(node_id=attacker.node_id), run_id=run_id, message_object_id=message_id
        )
        assert attacker.send("confirm-message-received", confirm)[0] == 403
    assert (
        attacker.send("pull-messages", PullMessagesRequest(node=Node(node_id=honest[0])))[0] == 401
    )

    deployment.wait_for(lambda: deployment.newest_run()["status"] == "finished:completed", 200)
    folder = only_folder(tmp_path / "attacked")
    assert [line["rejected"] for line in read_history(folder)] == [{}] * 7
    assert f"refused push-messages of node {attacker.node_id}: it says that it comes from" in (
        deployment.log("superlink")
    )
    assert_model(folder, deployment.train(tmp_path / "untouched", **keys))
