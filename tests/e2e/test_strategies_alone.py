"""The strategies as a package of their own, where there is neither torch nor this project's app."""

import os
import sys
import zipfile

import pytest

from tests.support.documents import ROOT
from tests.support.processes import succeed

pytestmark = pytest.mark.slow

SCRIPT = """
import sys
import strategies
from strategies import compression_mod
from strategies.stc import STC

print(strategies.__file__)
STC(fraction_train=0.5)
for name in strategies.names():
    strategies.load(name)
found = {"fedavg_app", "ray", "tasks", "torch"} & set(sys.modules)
assert not found, found
"""


def test_wheel_has_all_that_another_app_needs(tmp_path):
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    succeed(build, cwd=ROOT / "strategies")
    # To install a pure Python wheel is to unpack it; pip need not be there.
    (wheel,) = tmp_path.glob("fedavg_app_strategies-*.whl")
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(tmp_path)
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    found = succeed([sys.executable, "-c", SCRIPT], cwd=tmp_path, env=environment)
    assert found.stdout.strip() == str(tmp_path / "strategies" / "__init__.py")
