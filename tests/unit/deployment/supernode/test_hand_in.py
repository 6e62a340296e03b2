"""A client's state is handed in however long that takes: Flower's exit cuts it off after 5 s."""

import sys

import pytest

from tests.support.documents import ROOT
from tests.support.processes import ran

# Flower's process of one message, with a SuperNode that takes or refuses its output slowly. Flower
# is given less time for its exit than that.
CLIENT = """
import os, sys, time
from types import SimpleNamespace

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.supercore.exit import exit as flowers_exit
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supernode.runtime import run_clientapp as module
from deployment.supernode.client_main import run_clientapp
from fedavg_app.flower_internals import identify_server

flowers_exit.FORCE_EXIT_TIMEOUT_SECONDS = 0.2
outcome, file = sys.argv[1:]

def push_task_output(client, request):
    time.sleep(1)
    if outcome == "refuses":
        raise ConnectionError("no route")
    with open(file, "a") as found:
        print(request.sub_status, request.HasField("context"), file=found)

def app(message, context):
    context.state["kept"] = ConfigRecord({"n": 1})
    if outcome == "raises":
        raise ValueError("broken")
    return Message(RecordDict(), reply_to=message)

def install_from_fab(content, install_dir, skip_prompt):
    (install_dir / "app").mkdir()
    return install_dir / "app"

os.environ["FLWR_HOME"] = os.path.dirname(file)
identify_server(1)
message = Message(RecordDict(), dst_node_id=7, message_type="train")
context = Context(1, 7, {}, RecordDict(), {})
run = SimpleNamespace(run_id=1, fab_id="a/b", fab_version="1")
fab = SimpleNamespace(content=b"", hash_str="f")
RuntimeHttpClient.PushTaskOutput = push_task_output
module.pull_task_input = lambda client: (message, context, run, fab)
module.push_message = lambda *_: None
module.install_from_fab = install_from_fab
module.get_load_client_app_fn = lambda **_: lambda *_: app
module.HeartbeatSender = lambda _: SimpleNamespace(start=lambda: None, is_running=False)
run_clientapp("127.0.0.1:9", "token", os.getppid())
"""


@pytest.mark.parametrize(
    ("outcome", "handed_in"),
    [("takes", "completed True\n"), ("raises", "failed True\n"), ("refuses", "")],
)
def test_state_is_handed_in_before_the_process_ends_or_a_line_says_that_it_is_lost(
    tmp_path, outcome, handed_in
):
    program, found = tmp_path / "client.py", tmp_path / "found"
    program.write_text(CLIENT)
    found.touch()
    done = ran([sys.executable, program, outcome, found], cwd=ROOT)
    assert found.read_text() == handed_in
    text = "the client's state could not be stored, so its next round starts without it: no route"
    assert (text in done.stderr + done.stdout) == (outcome == "refuses")
