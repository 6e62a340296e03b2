"""Runs that leave what a real one leaves, without training: for tests of sweeps.

As a program it sweeps `experiment` with them, those of seed 2 taking a minute each:
`python -m tests.reproduction.fake_runs RESULTS`.
"""

import json
import signal
import subprocess
import sys
from pathlib import Path

from fedavg_app.config import CentralConfig, RunConfig
from fedavg_app.reproduction.experiments import Experiment
from fedavg_app.reproduction.sweep import sweep

FINGERPRINT = "7ecee0b9" + 56 * "0"


def experiment(**changes):
    values = {
        "name": "made-up", "title": "A table", "source": "nobody", "measure": "rounds-to-target",
        "run": {"task": "mnist-logistic", "target-accuracy": 0.9, "seed": [1, 2]},
        "columns": [{"name": "IID", "run": {"partition": "iid"}},
                    {"name": "shards", "run": {"partition": "shards"}}],
        "rows": [{"name": "E = 1", "run": {"local-epochs": 1}},
                 {"name": "E = 5", "run": {"local-epochs": 5, "learning-rate": 0.1}}],
    }  # fmt: skip
    return Experiment.model_validate({**values, **changes})


def line(number, accuracy, **changes):
    """A line of a history; every client sends 1 MB a round."""
    values = {
        "round": number, "participants": 10, "rejected": {}, "learning_rate": 0.1,
        "train_loss": 1 / (1 + number), "test_loss": 0.123456, "accuracy": accuracy,
        "total": {"bytes_up": 10_000_000 * number, "bytes_down": 20_000_000 * number},
    }  # fmt: skip
    return {**values, **changes}


def files(config, lines, **summary):
    """The files of a run's folder, by name."""
    accuracies = [one["accuracy"] for one in lines if one["accuracy"] is not None]
    shown = {
        "status": "finished", "rounds": lines[-1]["round"],
        "target-accuracy": config.target_accuracy or None, "rounds-to-target": None,
        "best-accuracy": max(accuracies), "data": "MNIST in /some/where",
        "data-fingerprint": FINGERPRINT, "versions": {"flwr": "1.41.0"}, **summary,
    }  # fmt: skip
    return {
        "config.json": json.dumps(
            config.model_dump(by_alias=True) | {"run-dir": "/somewhere/else"}
        ),
        "history.jsonl": "".join(json.dumps(one) + "\n" for one in lines),
        "summary.json": json.dumps(shown),
    }


def write(folder, config, lines, **summary):
    """Write a run's folder."""
    folder.mkdir(parents=True)
    for name, content in files(config, lines, **summary).items():
        (folder / name).write_text(content)
    return folder


# Like a run: says something, takes its time, leaves its folder; ends when asked to.
PROGRAM = """
import json, pathlib, sys, time
folder = pathlib.Path(sys.argv[1])
seconds, left, status = json.loads((folder / "told.json").read_text())
print("round 1", flush=True)
time.sleep(seconds)
if left:
    (folder / "run").mkdir()
    for name, content in left.items():
        (folder / "run" / name).write_text(content)
print("error: the last line", flush=True)
sys.exit(status)
"""


class FakeRuns:
    """A `Launch`; every run reaches 0.95 in round 2.

    Attributes:
        started: The configs of those that were started.
        seconds: How long a run of a seed takes.
        leaves: What a run of a config leaves, with its exit status.
    """

    def __init__(self, seconds=lambda seed: 0.0, leaves=None):
        self.started, self.seconds = [], seconds
        self.leaves = leaves or (lambda config: (files(config, HISTORY), 0))

    def __call__(self, config, folder, begun):
        assert begun is None
        assert isinstance(config, RunConfig | CentralConfig)
        self.started.append(config)
        told = [self.seconds(config.seed), *self.leaves(config)]
        (folder / "told.json").write_text(json.dumps(told))
        with (folder / "log").open("wb") as log:
            return subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", PROGRAM, str(folder)],
                stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip


HISTORY = [line(0, 0.1), line(1, 0.85), line(2, 0.95)]

if __name__ == "__main__":
    # A shell without job control has what it starts in the background ignore interrupts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    sweep(experiment(), Path(sys.argv[1]), FakeRuns(lambda seed: 60 * (seed - 1)), 2)
