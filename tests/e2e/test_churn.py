"""A run of real processes: a device comes late, one restarts, one dies, and then the server."""

import json
import os
import signal
import subprocess

import pytest

from tests.docs.reading import ROOT
from tests.e2e.deployment import Deployment

pytestmark = [pytest.mark.slow, pytest.mark.long]


def end(process, how):
    os.killpg(process.pid, how)
    process.wait(30)


@pytest.mark.timeout(900)
def test_a_run_goes_on_whatever_devices_do_and_resumes_when_the_server_is_back(tmp_path):
    (tmp_path / "deployment").mkdir()
    runs = tmp_path / "runs"
    keys = {
        "strategy": "stc", "local-steps": 1, "task": "mnist-logistic", "data-source": "embedded",
        "num-server-rounds": 100, "min-nodes": 2, "node-timeout": 120, "round-timeout": 25,
        "checkpoint-every": 1, "run-dir": str(runs),
    }  # fmt: skip

    def history():
        files = list(runs.glob("*/history.jsonl"))
        lines = files[0].read_text().splitlines(keepends=True) if files else []
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def reasons(start=0):
        return [why for record in history()[start:] for why in record["rejected"].values()]

    deployment = Deployment(tmp_path / "deployment", 2)
    deployment.node_options = []  # they try to reach the SuperLink for as long as it takes
    with deployment, (tmp_path / "run.log").open("w") as log:
        run = subprocess.Popen(
            deployment.app_command(**keys), cwd=ROOT, env=deployment.environment,
            stdout=log, stderr=log,
        )  # fmt: skip
        deployment.wait_for(lambda: len(history()) > 1, 150)
        assert history()[1]["participants"] == 2

        # The third joins; the first restarts and has forgotten its model.
        deployment.add_node(2)
        end(deployment.processes["device-0"], signal.SIGTERM)
        deployment.start_node(0, "device-0")
        deployment.wait_for(lambda: any("has forgotten its model" in why for why in reasons()), 200)
        deployment.wait_for(
            lambda: history()[-1]["participants"] == 3 and not history()[-1]["rejected"], 200
        )

        # One dies without a word; the others' round goes on without it.
        end(deployment.processes["device-1"], signal.SIGKILL)
        before = len(history())
        gone = ("no reply in time", "Node Unavailable")
        deployment.wait_for(
            lambda: any(text in why for why in reasons(before) for text in gone), 200
        )

        # The server dies, and with it the run; it comes back, and so do the devices.
        end(deployment.processes["superlink"], signal.SIGKILL)
        assert run.wait(60) != 0
        done = history()[-1]["round"]
        deployment.start_superlink()
        deployment.wait_for(lambda: deployment.newest_run()["status"] == "finished:failed", 60)
        deployment.wait_for(lambda: deployment.online() == 2, 120)
        (folder,) = runs.iterdir()
        more = {"num-server-rounds": done + 3, "resume": str(folder)}
        deployment.run_app(seconds=400, **{**keys, **more})

    records = history()
    assert [record["round"] for record in records] == list(range(done + 4))
    assert any(not record["rejected"] for record in records[done + 1 :])
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["status"] == "finished"
    # Down to the last round, one step of STC a round: it has learned since round 1.
    assert records[-1]["test_loss"] < records[1]["test_loss"]
