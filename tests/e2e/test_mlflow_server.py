"""`--callback mlflow` with a tracking server that runs; unit tests have folders of files only."""

import json
import subprocess
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from tests.support.documents import ROOT
from tests.support.processes import Processes, free_port

try:
    version("mlflow")
except PackageNotFoundError:
    pytest.skip(
        "the package mlflow is not installed; mlflow-skinny has no server", allow_module_level=True
    )

from mlflow import MlflowClient

from fedavg_app.callbacks.mlflow import EXPERIMENT

pytestmark = pytest.mark.slow

START_SECONDS = 120


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """The address of a tracking server with a database of its own, and its processes."""
    folder, port = tmp_path_factory.mktemp("mlflow"), free_port()
    address = f"http://127.0.0.1:{port}"
    command = [
        sys.executable, "-m", "mlflow", "server", f"--port={port}", "--workers=1",
        f"--backend-store-uri=sqlite:///{folder}/mlflow.db", f"--artifacts-destination={folder}",
    ]  # fmt: skip
    with Processes() as processes, (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            command, cwd=folder, env=processes.environment, stdout=log, stderr=subprocess.STDOUT
        )
        deadline = time.monotonic() + START_SECONDS
        while not answers(f"{address}/health"):
            assert process.poll() is None, (folder / "log").read_text()
            assert time.monotonic() < deadline, (folder / "log").read_text()
            time.sleep(0.2)
        yield address, processes


def answers(address):
    try:
        with urlopen(address, timeout=5) as answer:
            return answer.status == 200
    except (URLError, OSError):
        return False


def train(server, runs, *words):
    """Train, telling the server; return the run's folder, and the client of the server."""
    address, processes = server
    done = subprocess.run(
        [
            sys.executable, "simulation.py", *words, "--task=mnist-logistic", "--callback=mlflow",
            "--data-source=embedded", f"--run-dir={runs}",
        ],
        cwd=ROOT, env={**processes.environment, "MLFLOW_TRACKING_URI": address},
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    (folder,) = runs.iterdir()
    return folder, MlflowClient(tracking_uri=address)


@pytest.mark.parametrize(
    "words",
    [
        [
            "run",
            "--num-clients=2",
            "--fraction-train=1",
            "--num-server-rounds=3",
            "--num-workers=1",
        ],
        ["central", "--num-server-rounds=20", "--evaluate-every=10"],
    ],
    ids=lambda words: words[0],
)
def test_server_has_the_config_every_round_and_the_end(server, tmp_path, words):
    folder, client = train(server, tmp_path / "runs", *words)
    experiment = client.get_experiment_by_name(EXPERIMENT)
    runs = client.search_runs([experiment.experiment_id])
    (run,) = [run for run in runs if run.info.run_name == folder.name]
    assert run.info.status == "FINISHED"
    config = json.loads((folder / "config.json").read_text())
    assert run.data.params == {key: str(value) for key, value in config.items()}

    lines = [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]
    names = {"accuracy": "accuracy", "loss/test": "test_loss", "bytes/up": "bytes_up"}
    for name, key in names.items():
        expected = [(line["round"], line[key]) for line in lines if line[key] is not None]
        points = client.get_metric_history(run.info.run_id, name)
        assert [(point.step, point.value) for point in points] == expected
