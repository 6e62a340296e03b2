"""The longer update of a late device, from a round of the warm-up, counts."""

import json
import os
import signal

import pytest

from tests.support.deployment import Deployment

pytestmark = pytest.mark.long

# An update has 0.001^(t / 21) of the entries in round t: more than half in round 2, after round 20
# eight of logistic regression's 7,850.
ARGUMENTS = "uplink = {name = 'sparse', sparsity = 0.001}, warmup-rounds = 20, max-staleness = 1000"


@pytest.mark.timeout(900)
def test_late_update_of_a_device_counts(tmp_path):
    runs = tmp_path / "runs"

    def history():
        files = list(runs.glob("*/history.jsonl"))
        lines = files[0].read_text().splitlines(keepends=True) if files else []
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def bytes_up(start):
        return [line["bytes_up"] for line in history()[start:]]

    with Deployment(tmp_path / "deployment", 3) as deployment:
        deployment.wait_for(lambda: deployment.online() == 3)
        deployment.start_app(
            **{
                "strategy": "compressed", "strategy-args": ARGUMENTS, "local-steps": 1,
                "min-nodes": 3, "fraction-train": 0.67, "over-selection": 0.5,
                "num-server-rounds": 10_000, "run-dir": str(runs),
            }
        )  # fmt: skip
        deployment.wait_for(lambda: len(history()) > 2, 300)
        slow = deployment.processes["device-2"].pid
        os.killpg(slow, signal.SIGSTOP)
        deployment.wait_for(lambda: len(history()) > 24, 120)
        waited, (of_two_fast,) = len(history()), bytes_up(-1)
        os.killpg(slow, signal.SIGCONT)
        deployment.wait_for(lambda: max(bytes_up(waited), default=0) > 2 * of_two_fast, 120)
        assert not any(line["rejected"] for line in history())
