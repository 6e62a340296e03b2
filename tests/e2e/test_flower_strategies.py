"""One strategy of each of Flower's kinds, under `flwr run`.

Two more, by simulation.py, are in test_document_commands.py.
"""

import re

import pytest

from tests.support import client_mods
from tests.support.documents import ROOT
from tests.support.flwr_run import local_superlink, run_app
from tests.support.run_folders import only_folder, read_history, read_summary

FLOWER = "flwr.serverapp.strategy"
PRIVACY = (
    "strategy = 'fedavg', noise-multiplier = 0.01, clipping-norm = 1.0, num-sampled-clients = 4"
)
STRATEGIES = {
    "FedProx": "proximal-mu = 0.1",
    "FedAdam": "eta = 0.01, tau = 0.001",
    "Krum": "num-malicious-nodes = 1",
    "FedMedian": "",
    "DifferentialPrivacyServerSideFixedClipping": PRIVACY,
    "QFedAvg": "client-learning-rate = 0.04",
}
# The others are long tests; tests/integration has all in one process.
IN_CI = ("FedAdam",)
KEYS = {
    "task": "mnist-logistic", "data-source": "embedded", "num-clients": 4, "fraction-train": 1.0,
    "num-server-rounds": 2,
}  # fmt: skip


def config(name, runs):
    own = {"strategy": f"{FLOWER}:{name}", "strategy-args": STRATEGIES[name], "run-dir": str(runs)}
    return {**KEYS, **own}


def check_run(runs):
    history = read_history(only_folder(runs))
    assert [record["round"] for record in history] == [0, 1, 2]
    assert not any(record["rejected"] for record in history)
    assert history[2]["test_loss"] < history[0]["test_loss"]


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    with local_superlink(tmp_path_factory.mktemp("flwr")) as environment:
        yield environment | {"PYTHONPATH": str(ROOT)}  # for the mods of tests


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in IN_CI else pytest.mark.long) for name in STRATEGIES],
)
def test_flwr_run_trains_with_it(name, environment, tmp_path):
    shown, status = run_app(environment, config(name, tmp_path / "runs"), 4)
    assert status["status"] == "finished:completed", shown
    check_run(tmp_path / "runs")


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize(
    ("mod", "reason"),
    [
        ("dying", "no usable reply in round 2: "),
        (
            "reading",
            r"no usable reply in 2 rounds in a row: JSONDecodeError: .*client_mods\.py, line",
        ),
    ],
)
def test_run_whose_clients_fail_does_not_succeed(mod, reason, environment, tmp_path):
    """Flower replaces no process of its simulation that died."""
    keys = {**KEYS, "client-mods": f"{client_mods.HERE}:{mod}", "run-dir": str(tmp_path / "runs")}
    shown, status = run_app(environment, keys, 4)
    assert status["status"] == "finished:failed"
    assert re.search(reason, shown)
    folder = only_folder(tmp_path / "runs")
    assert read_summary(folder)["status"] == "no-replies"
    assert (folder / "model.safetensors").is_file()


@pytest.mark.slow
def test_failure_of_a_strategy_is_one_line_under_flwr_run(environment, tmp_path):
    keys = config("QFedAvg", tmp_path / "runs") | {"strategy-args": "client-learning-rate = 0"}
    shown, status = run_app(environment, keys, 4)
    assert status["status"] == "finished:failed"
    line = "strategy-args = 'client-learning-rate = 0': QFedAvg failed in round 1: ZeroDivisionErr"
    assert line in shown
