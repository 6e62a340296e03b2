"""What all tests share: a data cache of their own, and the identity that messages need."""

import os
import sys

import pytest

from fedavg_app.flower_internals import identify_server


@pytest.fixture(scope="session", autouse=True)
def _cache(tmp_path_factory):
    """Use an empty cache instead of the user's; child processes inherit the variable."""
    os.environ["FEDAVG_APP_CACHE"] = str(tmp_path_factory.mktemp("cache"))
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"


@pytest.fixture(scope="session", autouse=True)
def _identity():
    identify_server(1)


@pytest.fixture(autouse=True)
def _tracebacks():
    """Undo what the ServerApp does to this process as it fails."""
    yield
    sys.__dict__.pop("tracebacklimit", None)
