"""The shorter updates of a late device on a slow link count."""

import json
import os
import signal

import pytest

from tests.support.deployment import Deployment

pytestmark = pytest.mark.long

# STC of logistic regression's 7,850 entries: 314 of a fast device, 31 of the slow one.
ARGUMENTS = "sparsity-up = 0.04, max-staleness = 1000, links = {4G = {sparsity-up = 0.004}}"


@pytest.mark.timeout(900)
def test_late_update_of_a_device_on_a_slow_link_counts(tmp_path):
    runs = tmp_path / "runs"

    def history():
        files = list(runs.glob("*/history.jsonl"))
        lines = files[0].read_text().splitlines(keepends=True) if files else []
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def bytes_up(start):
        return [line["bytes_up"] for line in history()[start:]]

    with Deployment(tmp_path / "deployment", 2) as deployment:
        # Words of a node's config, with the document's number of partitions.
        words = deployment.command("deployment/supernode.sh", "num-partitions")[4]
        deployment.add_node(2, words.replace("partition-id=0", "partition-id=2") + " link='4G'")
        deployment.wait_for(lambda: deployment.online() == 3)
        deployment.start_app(
            **{
                "strategy": "stc", "strategy-args": ARGUMENTS, "local-steps": 1, "min-nodes": 3,
                "fraction-train": 0.67, "over-selection": 0.5, "num-server-rounds": 10_000,
                "run-dir": str(runs),
            }
        )  # fmt: skip
        deployment.wait_for(lambda: len(history()) > 2, 300)
        slow = deployment.processes["device-2"].pid
        os.killpg(slow, signal.SIGSTOP)
        began = len(history()) + 2  # its reply to an earlier round may have been on its way
        deployment.wait_for(lambda: len(history()) > began + 3, 120)
        of_two_fast, waited = min(bytes_up(began)), len(history())
        os.killpg(slow, signal.SIGCONT)
        shorter = 0.75 * of_two_fast
        deployment.wait_for(lambda: min(bytes_up(waited), default=shorter) < shorter, 120)
        assert min(bytes_up(waited)) > 0.5 * of_two_fast  # of a fast device and the slow one
        assert not any(line["rejected"] for line in history())
