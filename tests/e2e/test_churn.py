"""A run on a deployment while a device joins, one restarts, one dies, and then the server dies."""

import os
import signal

import pytest

from tests.support.deployment import COMMON, Deployment
from tests.support.run_folders import history_of, read_summary

pytestmark = pytest.mark.long


def end(process, number):
    os.killpg(process.pid, number)
    process.wait(30)


@pytest.mark.timeout(1800)
def test_run_survives_churn_of_devices_and_resumes_after_the_server_died(tmp_path):
    runs = tmp_path / "runs"
    keys = {
        "strategy": "stc", "local-steps": 1, "num-server-rounds": 10_000, "min-nodes": 2,
        "node-timeout": 300, "round-timeout": 60, "checkpoint-every": 1, "run-dir": str(runs),
    }  # fmt: skip

    def history():
        return history_of(runs)

    def reasons(start=0):
        return [why for record in history()[start:] for why in record["rejected"].values()]

    with Deployment(tmp_path / "deployment", 2) as deployment:
        run = deployment.start_app(**keys)
        deployment.wait_for(lambda: len(history()) > 1, 300)
        assert history()[1]["participants"] == 2

        # The third joins; the first restarts and has lost its state.
        deployment.add_node(2)
        deployment.stop_node("device-0")
        deployment.start_node(0, "device-0")
        lost = "the client lost its state"
        deployment.wait_for(lambda: any(lost in why for why in reasons()), 400)
        deployment.wait_for(
            lambda: history()[-1]["participants"] == 3 and not history()[-1]["rejected"], 400
        )

        # The second is killed; the others' rounds continue without it.
        end(deployment.processes["device-1"], signal.SIGKILL)
        before = len(history())
        unreachable = ("no reply in time", "Node Unavailable")
        deployment.wait_for(
            lambda: any(text in why for why in reasons(before) for text in unreachable), 400
        )

        # The server is killed, and the run with it; it is started again, and the devices reconnect.
        end(deployment.processes["superlink"], signal.SIGKILL)
        assert run.wait(120) != 0
        completed = history()[-1]["round"]
        deployment.start_superlink()
        deployment.wait_for(lambda: deployment.newest_run()["status"] == "finished:failed", 120)
        deployment.wait_for(lambda: deployment.online() == 2, 300)
        (folder,) = runs.iterdir()
        more = {"num-server-rounds": completed + 3, "resume": str(folder)}
        deployment.run_app(seconds=800, **{**COMMON, **keys, **more})

    records = history()
    assert [record["round"] for record in records] == list(range(completed + 4))
    assert any(not record["rejected"] for record in records[completed + 1 :])
    # The clients' states are lost, but the server knows: it sends the model without being asked.
    assert not any("the client lost its state" in why for why in reasons(completed + 1))
    assert read_summary(folder)["status"] == "finished"
    # With one step of STC a round, the model has improved since round 1.
    assert records[-1]["test_loss"] < records[1]["test_loss"]
