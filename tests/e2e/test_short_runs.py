"""The same short run under simulation.py, `flwr run` and on a deployment with TLS.

These are the only real runs of `make test`; what is marked slow covers each of them in full.
"""

import sys

import pytest

from tests.support.deployment import Deployment
from tests.support.documents import ROOT
from tests.support.flwr_run import local_superlink, run_app
from tests.support.processes import succeed
from tests.support.run_folders import assert_model, only_folder, read_history, read_summary

NUM_CLIENTS = 2
# Sparse updates both ways: clients have a state from the first round to the second. They are asked
# for their losses before they train.
KEYS = {
    "task": "mnist-logistic", "data-source": "embedded", "num-clients": NUM_CLIENTS,
    "fraction-train": 1.0, "num-server-rounds": 2, "strategy": "stc", "local-steps": 5, "seed": 5,
    "selection": "power-of-choice",
}  # fmt: skip


def simulate(keys, runs):
    """Run simulation.py; return the folder of its run, and what it printed."""
    flags = [f"--{key}={value}" for key, value in keys.items()]
    words = [sys.executable, "simulation.py", "run", *flags, f"--run-dir={runs}"]
    done = succeed(words, cwd=ROOT)
    return only_folder(runs), done


def run_under_flwr(keys, folder):
    """Run the app by `flwr run`, with as many nodes as clients; return the folder of its run."""
    (folder / "home").mkdir()
    with local_superlink(folder / "home") as environment:
        keys = {**keys, "run-dir": str(folder / "runs")}
        shown, status = run_app(environment, keys, keys["num-clients"])
    assert status["status"] == "finished:completed", shown
    run = only_folder(folder / "runs")
    assert f"results: {run}" in shown
    return run


@pytest.fixture(scope="module")
def simulated(tmp_path_factory):
    """The folder of the run under simulation.py, and what it printed."""
    return simulate(KEYS, tmp_path_factory.mktemp("simulated"))


def assert_same_training(folder, expected):
    """Assert that two run folders have the same model and the same metrics of every round."""
    assert_model(folder, expected)
    for line, expected_line in zip(read_history(folder), read_history(expected), strict=True):
        assert line.pop("test_loss") == pytest.approx(expected_line.pop("test_loss"), rel=1e-6)
        varying = {"seconds": 0, "rejected": {}}
        assert line["rejected"] == expected_line["rejected"] == {}
        assert {**line, **varying} == {**expected_line, **varying}


def test_simulation_trains_and_writes_its_results(simulated):
    folder, done = simulated
    assert "Traceback" not in done.stderr
    assert "embedded MNIST subset" in done.stdout
    assert f"results: {folder}" in done.stdout
    summary = read_summary(folder)
    assert (summary["status"], summary["rounds"], summary["rejected-replies"]) == ("finished", 2, 0)
    records = read_history(folder)
    assert [record["round"] for record in records] == [0, 1, 2]
    assert records[-1]["test_loss"] < records[0]["test_loss"]


def test_flwr_run_trains_the_model_of_the_simulation(simulated, tmp_path):
    folder = run_under_flwr(KEYS, tmp_path)
    assert_same_training(folder, simulated[0])


def test_deployment_with_tls_trains_the_model_of_the_simulation(simulated, tmp_path):
    with Deployment(tmp_path / "deployment", NUM_CLIENTS) as deployment:
        folder = deployment.train(tmp_path / "runs", **KEYS)
    assert_same_training(folder, simulated[0])
