"""Fixtures that isolate tests from the user's files and from each other."""

import gc
import os
import sys

import pytest
from flwr.supercore.task_identity import TaskIdentity

from fedavg_app.flower_internals import identify_server
from fedavg_app.server import node_registry, polling
from tests.support.processes import Processes


def pytest_collection_finish():
    """Leave out of garbage collections what stays to the end: Flower's strategies start many."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish():
    gc.unfreeze()  # or a library reports at the end that its objects have leaked


@pytest.fixture(scope="session", autouse=True)
def _cache(tmp_path_factory):
    """Use an empty cache instead of the user's; child processes inherit the variable."""
    os.environ["FEDAVG_APP_CACHE"] = str(tmp_path_factory.mktemp("cache"))
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"


class Clock:
    """A clock that moves only when somebody sleeps."""

    now = 0.0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


@pytest.fixture
def clock(monkeypatch):
    """Let the code that waits for nodes and replies use a clock that moves at once."""
    clock = Clock()
    for module in (polling, node_registry):
        monkeypatch.setattr(module, "time", clock)
    return clock


@pytest.fixture
def processes():
    with Processes() as started:
        yield started


@pytest.fixture
def command_line(monkeypatch, capsys):
    """Return a function that runs a command here and returns (status, output, errors)."""
    with capsys.disabled():  # some modules keep the stream that they find when imported
        from fedavg_app.cli.main import main

    def run(*words):
        capsys.readouterr()
        monkeypatch.setattr(sys, "argv", ["fedavg", *map(str, words)])
        return main(), *capsys.readouterr()

    return run


@pytest.fixture
def configs(monkeypatch, command_line):
    """Return a function that runs a command and returns the config that it would train."""
    found = []
    for train in ("ray_engine.simulation.simulate", "central_sgd.train_centrally"):
        monkeypatch.setattr(f"fedavg_app.{train}", lambda config, *_: found.append(config))

    def run(*words):
        assert command_line(*words)[0] == 0
        return found.pop()

    return run


@pytest.fixture(scope="module")
def server_identity():
    """Make this process a run's server, for a module that makes messages itself."""
    identify_server(1)


@pytest.fixture(scope="module", autouse=True)
def _no_identity():
    """Forget the identity that a module's tests or grids gave this process."""
    yield
    for name in ("task_id", "run_id", "node_id"):
        setattr(TaskIdentity, name, None)
