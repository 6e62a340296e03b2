"""Before a run's workers start: invalid settings are refused, and the steps are shown."""

import io
import sys
from contextlib import nullcontext

import pytest
from rich.console import Console

from fedavg_app.callbacks.base import Callback
from fedavg_app.config import RunConfig, with_clients
from fedavg_app.errors import ConfigError
from fedavg_app.ray_engine import simulation
from fedavg_app.ray_engine.simulation import StatusLine
from fedavg_app.server.preparation import prepare
from fedavg_app.server_app import run
from tasks.arguments import Arguments
from tasks.data.dataset import DataError
from tests.support.documents import ROOT
from tests.support.local_grid import LocalGrid
from tests.support.processes import ran

pytestmark = pytest.mark.usefixtures("server_identity")

CONFIG = RunConfig(
    task="mnist-logistic", data_source="embedded", num_clients=4, fraction_train=0.5,
    num_server_rounds=2, checkpoint_every=1, target="none",
)  # fmt: skip


class WorkersStartedError(Exception):
    """Workers would have been started."""


@pytest.fixture
def refusal(monkeypatch):
    """Return a function that returns why a config is refused."""

    def start_workers():
        raise WorkersStartedError

    monkeypatch.setattr(simulation, "ray_cluster", lambda *_: nullcontext(start_workers))

    def refused(config, **options):
        with pytest.raises((ConfigError, DataError)) as caught:
            simulation.simulate(config, **options)
        return str(caught.value)

    return refused


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"task": "mnits"}, "task = 'mnits': known tasks"),
        ({"strategy": "fedagv"}, "strategy = 'fedagv': 'fedagv' is no strategy"),
        (
            {"strategy": "stc", "strategy_args": Arguments("sparsity-upp = 0.1")},
            "strategy-args = 'sparsity-upp = 0.1': STC does not take sparsity-upp",
        ),
        ({"min_replies": 3}, "min-replies = 3: a round has 2 clients"),
        ({"optimizer": "adm"}, "optimizer = 'adm': known optimisers"),
        ({"optimizer": "mine:O"}, "optimizer = 'mine:O': No module named 'mine'"),
        ({"links": "6g"}, "links = '6g': give fibre"),
        ({"links": "pyproject.toml"}, "links = 'pyproject.toml': class: Field required"),
        ({"partition": "shard"}, "partition = 'shard': known partitions"),
        ({"partition": "mine:f"}, "partition = 'mine:f': there is no module 'mine'"),
        (
            {"partition": "shards", "partition_args": Arguments("shards = 2")},
            "partition-args = 'shards = 2': shards takes",
        ),
        ({"run_dir": "/proc/runs"}, "run-dir = '/proc/runs': cannot write there"),
        ({"run_dir": "pyproject.toml"}, "run-dir = 'pyproject.toml': cannot write there"),
        ({"resume": "/nowhere"}, "resume = '/nowhere': give the folder of a federated run"),
        ({"client_mods": "mine:mod"}, "client-mods = 'mine:mod': there is no module 'mine'"),
        ({"data_source": "auto", "data_dir": "/none"}, "data-dir = '/none' is not a directory"),
        ({"data_source": "auto", "data_dir": "docs"}, "data-dir = 'docs' has no train-images-idx3"),
        ({"local_arrays": "head.*"}, "local-arrays = 'head.*': 'head.*' matches no array"),
        ({"objective": "acuracy"}, "objective = 'acuracy': is 'acuracy', which is no metric"),
    ],
)
def test_setting_that_cannot_be_used_is_refused_before_ray_starts(
    monkeypatch, tmp_path, changes, why
):
    def start_ray(*_):
        raise WorkersStartedError

    monkeypatch.setattr(simulation, "ray_cluster", start_ray)
    config = CONFIG.model_copy(update={"run_dir": str(tmp_path), **changes})
    with pytest.raises((ConfigError, DataError)) as caught:
        simulation.simulate(config)
    assert str(caught.value).startswith(why)


def test_run_is_not_resumed_while_another_process_trains_it(tmp_path):
    config = with_clients(CONFIG.model_copy(update={"run_dir": str(tmp_path)}))
    run(LocalGrid(config.model_dump(by_alias=True), 4), prepare(config))
    (folder,) = tmp_path.iterdir()
    words = [sys.executable, "simulation.py", "resume", "--num-server-rounds=9", str(folder)]
    found = []

    class Resume(Callback):
        def on_round_end(self, metrics, model):
            found.append(ran(words, cwd=ROOT))

    resumed = config.model_copy(update={"resume": str(folder), "num_server_rounds": 3})
    grid = LocalGrid(config.model_dump(by_alias=True), 4)
    run(grid, prepare(resumed), callbacks=[lambda _: Resume()])
    (second,) = found
    assert second.returncode == 1
    assert second.stderr == (
        f"error: resume = '{folder}': another process trains this run; wait until it has ended\n"
    )


def test_cluster_that_cannot_be_reached_is_refused_before_the_data_are_loaded(refusal):
    config = CONFIG.model_copy(update={"data_source": "auto", "data_dir": "/none"})
    why = "ray-address = '127.0.0.1:1': cannot be reached"
    assert refusal(config, ray_address="127.0.0.1:1").startswith(why)


def test_resumed_run_with_fewer_rounds_than_are_done_is_refused_before_workers_start(
    refusal, tmp_path
):
    config = with_clients(CONFIG.model_copy(update={"run_dir": str(tmp_path)}))
    run(LocalGrid(config.model_dump(by_alias=True), 4), prepare(config))
    (folder,) = tmp_path.iterdir()
    resumed = config.model_copy(update={"resume": str(folder), "num_server_rounds": 1})
    assert refusal(resumed) == "num-server-rounds = 1: the run has completed 2 rounds; give more"


@pytest.mark.parametrize(
    ("seconds", "terminal", "shown"),
    [(0.0, False, ["b", "c"]), (3600.0, False, []), (3600.0, True, [])],
)
def test_slow_preparation_is_shown_step_by_step(monkeypatch, seconds, terminal, shown):
    monkeypatch.setattr(simulation, "SILENT_SECONDS", seconds)
    file = io.StringIO()
    line = StatusLine(Console(file=file, force_terminal=terminal))
    line("a")
    line("b")
    with line:
        if not seconds:
            line._timer.join()
        line("c")
    assert file.getvalue().split() == shown


def test_terminal_shows_one_line_and_erases_it(monkeypatch):
    monkeypatch.setattr(simulation, "SILENT_SECONDS", 0.0)
    file = io.StringIO()
    with StatusLine(Console(file=file, force_terminal=True, width=80)) as line:
        line("loading")
        line._timer.join()
        line("splitting")
        line._live.refresh()
    written = file.getvalue()
    assert written.count("\n") <= 1
    assert "splitting" in written
    assert written.endswith("\x1b[2K")  # the line is erased
