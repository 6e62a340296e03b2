"""Many devices in one process: threads with keys of their own, on Flower's own connection.

    python -m tests.support.light_devices FOLDER HOST:PORT NUMBER

Keys device-0, device-1, ... and certificates/ca.crt are in the folder. All are registered first.
Every second, the folder's file ``in-vain`` gets the number of requests for objects that failed.
"""

import sys
import threading
import time
from functools import partial
from pathlib import Path

import torch
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.app import Context, RecordDict
from flwr.cli.flower_config import read_superlink_connection
from flwr.cli.supernode.register import try_load_public_key
from flwr.cli.utils import init_http_client_from_connection
from flwr.common.config import get_fused_config_from_dir
from flwr.proto.control_pb2 import RegisterNodeRequest
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    iterate_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.inflatable.inflatable_utils import (
    ObjectUnavailableError,
    inflate_object_from_contents,
    pull_objects,
    push_objects,
)
from flwr.supernode.fleet_http_connection import http_request_response

from tests.support.documents import ROOT

IN_VAIN = []
TRAINING = threading.Lock()


def serve(folder, address, number, total):
    """Answer the messages of one device for ever."""
    from fedavg_app.client_app import app

    key = load_ssh_private_key((folder / f"device-{number}").read_bytes(), None)
    certificates = (folder / "certificates" / "ca.crt").read_bytes()
    node_config = {"partition-id": number, "num-partitions": total}
    with http_request_response(address, False, certificates, (key, key.public_key())) as connection:
        node_id, receive, send, get_run, _, pull_object, push_object, confirm = connection
        contexts = {}

        def pull(run_id, object_id):
            try:
                return pull_object(run_id, object_id)
            except ObjectUnavailableError:
                IN_VAIN.append(object_id)
                raise

        while True:
            if (received := receive()) is None:
                time.sleep(3)
                continue
            metadata, tree = received[0].metadata, received[1]
            run_id = metadata.run_id
            if run_id not in contexts:
                config = get_fused_config_from_dir(ROOT, get_run(run_id).override_config)
                contexts[run_id] = Context(run_id, node_id, node_config, RecordDict(), config)
            ids = [node.object_id for node in iterate_object_tree(tree)]
            contents = pull_objects(ids, partial(pull, run_id))
            confirm(run_id, metadata.message_id)
            message = inflate_object_from_contents(metadata.message_id, contents)
            message.metadata.__dict__["_message_id"] = metadata.message_id
            with TRAINING:
                reply = app(message, contexts[run_id])
            with no_object_id_recompute():
                reply.metadata.__dict__["_message_id"] = reply.object_id
                missing, session_id = send(reply, get_object_tree(reply), 0.0)
                push = partial(push_object, run_id, session_id)
                objects = get_all_nested_objects(reply)
                push_objects(objects, push, object_ids_to_push=missing)


def register(folder, total):
    """Register the keys, as `flwr supernode register` does for one."""
    client = init_http_client_from_connection(read_superlink_connection("deployment"))
    for number in range(total):
        key = try_load_public_key(folder / f"device-{number}.pub")
        client.RegisterNode(request=RegisterNodeRequest(public_key=key))
    client.close()


def main():
    folder, address, total = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    torch.set_num_threads(1)
    register(folder, total)
    for number in range(total):
        threading.Thread(target=serve, args=(folder, address, number, total), daemon=True).start()
    while True:
        (folder / "in-vain").write_text(str(len(IN_VAIN)))
        time.sleep(1)


if __name__ == "__main__":
    main()
