"""A run on two Ray nodes: a worker on the driver's node, and one reached by Ray calls."""

import pytest

from tests.support.in_process import DEFAULTS, make_config, run_here
from tests.support.processes import Processes
from tests.support.run_folders import assert_model, read_history, simulated

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def ray():
    """The environment and address of Ray on two nodes with one CPU each, so one worker each."""
    with Processes() as processes:
        address = processes.ray_head(cpus=1)
        # An address of its own: the driver joins the node that has this machine's.
        processes.ray(f"--address={address}", "--num-cpus=1", "--node-ip-address=127.0.0.2")
        yield processes.environment, address


@pytest.mark.parametrize(
    "changes",
    [
        {"task": "mnist-2nn", "num-server-rounds": 2},
        {"strategy": "stc", "local-steps": 1, "num-server-rounds": 12},
    ],
    ids=["2nn", "stc"],
)
def test_two_nodes_train_the_same_model_as_one_process(ray, tmp_path, changes):
    environment, address = ray
    keys = {**DEFAULTS, "fraction-train": 0.5, **changes}
    engine = {"ray-address": address, "num-workers": 2}
    folder = simulated(tmp_path / "two", keys | engine, env=environment)
    expected = run_here(make_config(**keys, run_dir=str(tmp_path / "one")))
    assert_model(folder, expected.model)
    rounds = read_history(folder)
    assert not any(record["rejected"] for record in rounds)
    assert [record["test_loss"] for record in rounds] == [m.test_loss for m in expected.history]
