"""How many CPUs this process may use, which need not be all that the machine has."""

import os
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")


def usable_cpus() -> tuple[int, str]:
    """Return how many workers this machine has room for, at least one, and why."""
    cores = os.cpu_count() or 1
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else cores
    quota = min(cgroup_quotas(), default=float(allowed))
    if quota < allowed:
        return max(int(quota), 1), f"the control group's quota is {quota:g} CPUs"
    if allowed < cores:
        return allowed, f"this process may run on {allowed} of {cores} cores"
    return cores, f"this machine has {cores} cores"


def cgroup_quotas() -> list[float]:
    """Return the CPU quotas of this process's control groups (versions 1 and 2), in CPUs."""
    found = []
    for line in MEMBERSHIP.read_text().splitlines() if MEMBERSHIP.exists() else []:
        _, controllers, path = line.split(":", 2)
        root = CGROUPS / "cpu" if controllers else CGROUPS
        # A container sees its own group as the root, or the host's path and the root beside it.
        group = root / path.lstrip("/")
        for folder in {root, group, *group.parents}:
            try:
                if controllers:
                    files = (folder / f"cpu.cfs_{name}_us" for name in ("quota", "period"))
                    quota, period = (float(file.read_text()) for file in files)
                else:
                    quota, period = map(float, (folder / "cpu.max").read_text().split())
            except (OSError, ValueError):  # there is no such group, or no limit: "max"
                continue
            if quota > 0:
                found.append(quota / period)
    return found
