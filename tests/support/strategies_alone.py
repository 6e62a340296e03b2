"""The distribution `fedavg-strategies`, installed as a user of another app installs it."""

import sys

from tests.support.documents import ROOT
from tests.support.processes import succeed


def install(folder):
    """Install it into a folder, with what it depends on taken from this environment."""
    options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--no-build-isolation"]
    command = [sys.executable, "-m", "pip", "install", *options, "--target", str(folder)]
    succeed([*command, str(ROOT / "strategies")], 120)
    return folder
