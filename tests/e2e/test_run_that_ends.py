"""A run that ends while a device receives a message leaves the device free for the next run."""

import os
import signal

import pytest

from tests.support.deployment import Deployment
from tests.support.processes import free_port
from tests.support.slow_link import SlowLink

pytestmark = [pytest.mark.slow, pytest.mark.long]


def stop(deployment):
    run = deployment.newest_run()
    deployment.run(["flwr", "stop", str(run["run-id"]), "deployment"])


def kill(deployment):
    # The SuperLink starts its SuperExec, which starts the ServerApp, each in a session of its own.
    parent = deployment.processes["superlink"].pid
    for program in ("flower-superexec", "flwr-serverapp"):
        (parent,) = deployment.run(["pgrep", "-P", str(parent), "-f", program]).stdout.split()
    os.kill(int(parent), signal.SIGKILL)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("end", [stop, kill])
def test_next_run_starts_at_once_after_a_run_that_ended_during_a_transfer(tmp_path, end):
    port = free_port()
    deployment = Deployment(tmp_path / "deployment", 1, fleet_port=port)
    with SlowLink(port, deployment.port) as link, deployment:
        keys = {
            "task": "mnist-cnn", "num-clients": 1, "num-server-rounds": 20, "local-steps": 1,
            "run-dir": str(tmp_path / "runs"),
        }  # fmt: skip
        run = deployment.start_app(**keys)

        def log():
            return deployment.log("device-0")

        deployment.wait_for(lambda: "ROUND 1]" in log())
        link.rate = 100_000  # 6.7 MB take over a minute
        received = log().count("Received successfully")
        deployment.wait_for(
            lambda: log().rstrip().endswith(")") and "Receiving: train" in log().splitlines()[-1]
        )
        end(deployment)
        deployment.wait_for(lambda: deployment.newest_run()["status"].startswith("finished"))
        link.rate = None
        run.kill()
        run.wait()
        assert log().count("Received successfully") <= received + 1

        # It would wait for ever for a device that still has the message of the first run.
        deployment.train(tmp_path / "runs", **{"num-clients": 1, "num-server-rounds": 1})
        assert f"[RUN {deployment.newest_run()['run-id']}, ROUND 1]" in log()
