"""Packages as a user installs them: from a wheel, outside the repository."""

import sys
import zipfile

from tests.support.processes import succeed


def install(package, target):
    """Build a package's wheel and unpack it into a folder for PYTHONPATH; return the folder."""
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(target)]
    succeed(build, cwd=package)
    # Unpacking a pure Python wheel installs it, without pip.
    (wheel,) = target.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(target)
    return target
