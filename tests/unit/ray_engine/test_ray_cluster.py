"""How a cluster's resources are divided on workers; Ray is not started."""

import sys

import pytest
import ray

from fedavg_app.config import kebab
from fedavg_app.errors import ConfigError, RunError
from fedavg_app.ray_engine import ray_cluster
from tests.support.documents import ROOT
from tests.support.processes import ran


@pytest.fixture
def divide(monkeypatch):
    def divided(cpus, gpus, num_workers=0, gpus_per_worker="auto", device="auto"):
        resources = {"CPU": float(cpus), **({"GPU": float(gpus)} if gpus else {})}
        monkeypatch.setattr(ray, "cluster_resources", lambda: resources)
        return ray_cluster._worker_resources(num_workers, gpus_per_worker, device)

    return divided


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"cpus": 4, "gpus": 0}, (4, 0.0)), ({"cpus": 4, "gpus": 1}, (4, 0.25)),
        ({"cpus": 5, "gpus": 2}, (5, 1 / 3)),
        ({"cpus": 4, "gpus": 1, "device": "cpu"}, (4, 0.0)),
        ({"cpus": 2, "gpus": 4, "gpus_per_worker": 2.0}, (2, 2.0)),
    ],
)  # fmt: skip
def test_resources_are_divided_evenly_unless_given(divide, given, expected):
    assert divide(**given) == expected


@pytest.mark.parametrize(
    ("cpus", "gpus", "key", "value", "error"),
    [
        (2, 0, "num_workers", 3, "the cluster has 2 CPUs, one per worker"),
        (3, 1, "gpus_per_worker", 0.5, "3 workers need more than the cluster's 1 GPUs"),
        (2, 8, "gpus_per_worker", 1.5, "give a share up to 1, or whole GPUs"),
    ],
)
def test_more_workers_than_resources_is_a_config_error(divide, cpus, gpus, key, value, error):
    with pytest.raises(ConfigError) as raised:
        divide(cpus, gpus, **{key: value})
    assert str(raised.value) == f"{kebab(key)} = {value}: {error}"


def test_start_that_ray_gives_up_is_one_line(monkeypatch):
    def give_up(**options):
        raise Exception("The current node timed out during startup.\nmore")  # noqa: TRY002

    monkeypatch.setattr(ray, "init", give_up)
    with (
        pytest.raises(RunError, match=r"^Ray cannot start on this machine: The .* startup\.$"),
        ray_cluster.ray_cluster("", 1, 0.0, "cpu") as started,
    ):
        started.result()


STUCK = """
import sys, threading
from fedavg_app.ray_engine import ray_cluster

ray_cluster.STUCK_SECONDS = 0.1
ray_cluster._start = lambda *_: threading.Event().wait()
with ray_cluster.ray_cluster("", 1, "auto", "cpu"):
    raise {signal}
"""


@pytest.mark.parametrize(
    ("signal", "status"), [("SystemExit(143)", 143), ("KeyboardInterrupt", 130)]
)
def test_signal_ends_a_process_whose_start_of_ray_hangs(signal, status):
    """As where it has interrupted an import, whose lock Ray's thread then waits for."""
    done = ran([sys.executable, "-c", STUCK.format(signal=signal)], 60, cwd=ROOT)
    assert (done.returncode, done.stdout, done.stderr) == (status, "", "")
