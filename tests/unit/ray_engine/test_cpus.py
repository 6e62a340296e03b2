"""How many workers a machine, a container or an affinity leaves room for."""

import os

import pytest

from fedavg_app.ray_engine import cpus


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """Return what makes a machine of 8 cores with the control groups' files."""

    def make(membership, affinity=8, **files):
        monkeypatch.setattr(os, "cpu_count", lambda: 8)
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(affinity)))
        monkeypatch.setattr(cpus, "CGROUPS", tmp_path)
        monkeypatch.setattr(cpus, "MEMBERSHIP", tmp_path / "membership")
        (tmp_path / "membership").write_text(membership)
        for name, content in files.items():
            path = tmp_path / name.replace("__", "/").replace("_DOT_", ".")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        return cpus.usable_cpus()

    return make


def test_affinity_is_followed(machine):
    assert machine("", affinity=1) == (1, "this process may run on 1 of 8 cores")


@pytest.mark.parametrize(("quota", "workers"), [("50000", 1), ("250000", 2), ("900000", 8)])
def test_quota_of_version_2_is_followed_with_at_least_one_worker(machine, quota, workers):
    found, why = machine("0::/a/b\n", a__cpu_DOT_max=f"{quota} 100000\n")
    assert found == workers
    assert ("quota" in why) == (workers < 8)


def test_quota_of_version_1_is_followed(machine):
    found, _ = machine(
        "4:cpu,cpuacct:/docker/x\n3:memory:/docker/x\n",
        cpu__cpu_DOT_cfs_quota_us="300000\n",
        cpu__cpu_DOT_cfs_period_us="100000\n",
        cpu__docker__x__cpu_DOT_cfs_quota_us="-1\n",
        cpu__docker__x__cpu_DOT_cfs_period_us="100000\n",
    )
    assert found == 3
