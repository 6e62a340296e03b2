"""A client's state goes from message to message in files, or a line says that it is lost."""

import sys

from tests.support.documents import ROOT
from tests.support.processes import ran

# Flower's process of one message, whose app counts its messages in the state.
CLIENT = """
import os, resource, sys
from types import SimpleNamespace

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.supernode.runtime import run_clientapp as module
from deployment.supernode.client_main import run_clientapp
from fedavg_app.flower_internals import identify_server

outcome, home, *states = sys.argv[1:]

def app(message, context):
    n = context.state["kept"]["n"] + 1 if context.state else 1
    context.state["kept"] = ConfigRecord({"n": n, "large": bytes(10**6)})
    print("message", n)
    if outcome == "raises":
        raise ValueError("broken")
    if outcome == "full":
        resource.setrlimit(resource.RLIMIT_FSIZE, (10**5, 10**5))
    return Message(RecordDict(), reply_to=message)

def push_message(client, message, context):
    print("replies when", os.path.getsize(states[1]) > 10**6, "error", message.has_error())

def install_from_fab(content, install_dir, skip_prompt):
    (install_dir / "app").mkdir()
    return install_dir / "app"

os.environ["FLWR_HOME"] = home
identify_server(1)
message = Message(RecordDict(), dst_node_id=7, message_type="train")
context = Context(1, 7, {}, RecordDict(), {})
run = SimpleNamespace(run_id=1, fab_id="a/b", fab_version="1")
fab = SimpleNamespace(content=b"", hash_str="f")
module.pull_task_input = lambda client: (message, context, run, fab)
module.push_message = push_message
module.push_task_output = lambda **options: None
module.install_from_fab = install_from_fab
module.get_load_client_app_fn = lambda **_: lambda *_: app
module.HeartbeatSender = lambda _: SimpleNamespace(start=lambda: None, is_running=False)
run_clientapp("127.0.0.1:9", "token", os.getppid(), states)
"""
LOST = "the client's state could not be stored, so its next round starts without it: "


def test_state_is_stored_before_the_reply_is_sent_or_a_line_says_that_it_is_lost(tmp_path):
    program, files = tmp_path / "client.py", [tmp_path / f"state-{n}" for n in range(5)]
    program.write_text(CLIENT)
    for file in files:
        file.touch()
    lines = [
        ("", "message 1", "replies when True error False"),
        ("raises", "message 2", "replies when True error True"),
        ("full", "message 3", "replies when False error False"),
        ("", "message 1", "replies when True error False"),
    ]
    for (outcome, *expected), before, after in zip(lines, files[:-1], files[1:], strict=True):
        done = ran([sys.executable, program, outcome, tmp_path, before, after], cwd=ROOT)
        assert all(line in done.stdout for line in expected), done.stdout + done.stderr
        assert (LOST in done.stdout + done.stderr) == (outcome == "full")
