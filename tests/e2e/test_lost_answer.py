"""A device that must announce its replies again, since the answers were lost on the way."""

import pytest

from tests.support import lost_answer
from tests.support.deployment import Deployment
from tests.support.run_folders import read_history

pytestmark = pytest.mark.long  # test_gate.py of the unit tests has the gate alone


@pytest.mark.timeout(600)
def test_reply_that_is_announced_again_arrives(tmp_path):
    """The run has asked for it in between, after which Flower names no objects to send."""
    with Deployment(tmp_path / "deployment", 1) as deployment:
        deployment.add_hostile_node(1, lost_answer)
        deployment.wait_for_devices(2)
        keys = {"num-clients": 2, "fraction-train": 1.0, "round-timeout": 60}
        folder = deployment.train(tmp_path / "runs", **keys)
    assert [record["rejected"] for record in read_history(folder)] == [{}, {}, {}]
