"""The command line of simulation.py, in this process."""

import sys

import pytest

from fedavg_app.config import CentralConfig, RunConfig
from tests.support.documents import ROOT
from tests.support.processes import ran


@pytest.mark.parametrize(
    ("command", "config"),
    [("run", RunConfig), ("central", CentralConfig), ("partition", RunConfig)],
)
def test_help_lists_every_key_of_the_config(command_line, command, config):
    status, shown, _ = command_line(command, "--help")
    assert status == 0
    for name in config.model_fields:
        assert f"--{name.replace('_', '-')} " in shown


@pytest.mark.parametrize(
    ("arguments", "fragment"),
    [
        (
            ["run", "--batch-size=-1"],
            "error: batch-size = '-1': should be greater than or equal to 0",
        ),
        (["run", "--num-workers=-2"], "error: Invalid value for '--num-workers': -2"),
        (["run", "--gpus-per-worker=x"], "error: Invalid value for '--gpus-per-worker': 'x'"),
        (["run", "--learning-rate=1e30"], "error: learning-rate = '1e30'"),
        (["run", "--local-steps=2", "--local-epochs=5"], "error: local-epochs = 5: leave it at 1"),
        (["run", "--link-work=a"], "error: --link-work: removed; give all clients the same local-"),
        (["run", "--callback=nowhere:Callback"], "error: callback = 'nowhere:Callback': there is"),
        (["run", "--config=/nowhere.toml"], "error: config = '/nowhere.toml': give a TOML file"),
        (["evaluate", "/nowhere"], "error: RUN = '/nowhere': give the folder of a run"),
        (
            ["run", "--ray-address=127.0.0.1:1"],
            "error: ray-address = '127.0.0.1:1': cannot be reached",
        ),
        (["resume", "/nowhere"], "error: resume = '/nowhere': give the folder of a federated run"),
        (["central", "--data-dir=/none"], "error: data-dir = '/none' is not a directory"),
        (["partition", "--plot=clients.html"], "error: plot = 'clients.html': give a name that"),
        (["partition", "--plot=/nowhere/clients.png"], "error: plot = '/nowhere/clients.png'"),
        (["partition", "--partition-args=x"], "error: partition-args = 'x': write TOML"),
    ],
)
def test_bad_input_is_one_line_and_a_nonzero_exit_status(command_line, arguments, fragment):
    status, _, error = command_line(*arguments)
    assert status != 0
    assert fragment in error
    assert len(error.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "suggestion"),
    [(["run", "--bach-size", "5"], "--batch-size"), (["partitoin"], "partition")],
)
def test_misspelt_word_is_refused_with_a_suggestion(command_line, arguments, suggestion):
    status, _, error = command_line(*arguments)
    assert status == 2
    assert f"Did you mean {suggestion}" in error.replace("'", "")
    assert len(error.strip().splitlines()) == 1


PROGRAM = """
import atexit, logging, sys
from fedavg_app.cli.main import app, run_process

@app.command("probe")
def probe():
    log = logging.getLogger("flwr")
    log.info("a line of Flower's"); log.warning("a warning of Flower's")
    atexit.register(print, "sent", end="")

@app.command("fail")
def fail():
    1 / 0

sys.argv[0] = "fedavg"
run_process()
"""


@pytest.mark.parametrize(("word", "status"), [("probe", 0), ("lost", 2)])
def test_process_ends_with_its_status_after_the_exit_handlers_of_others(word, status):
    """Such as those of experiment trackers, which send what is left.

    Of Flower's logger, which has its handler from the import on, only warnings are printed, once.
    """
    done = ran([sys.executable, "-c", PROGRAM, word], cwd=ROOT)
    assert (done.returncode, done.stdout) == (status, "sent" if status == 0 else "")
    if status == 0:
        assert done.stderr.splitlines() == ["WARNING a warning of Flower's"]


@pytest.mark.parametrize("debug", [True, False])
def test_unexpected_error_has_its_place_and_with_debug_its_traceback(debug):
    done = ran([sys.executable, "-c", PROGRAM, *(["--debug"] if debug else []), "fail"], cwd=ROOT)
    assert done.returncode == 1
    assert ("Traceback" in done.stderr) == debug
    last = done.stderr.splitlines()[-1]
    assert last.startswith("error: ZeroDivisionError: division by zero")
    assert last.endswith("--debug shows the traceback") != debug
