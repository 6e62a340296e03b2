"""Runs that leave the files of real runs without training, for tests of sweeps."""

import json

from fedavg_app.config import CentralConfig, RunConfig, parse_config, with_clients
from paper.experiments import Experiment

FINGERPRINT = "7ecee0b9" + 56 * "0"


def experiment(**changes):
    """Return an experiment of two columns, two rows and two seeds: eight runs."""
    values = {
        "name": "made-up", "title": "A table", "source": "nobody", "measure": "rounds-to-target",
        "run": {"task": "mnist-logistic", "target": 0.9, "seed": [1, 2]},
        "columns": [{"name": "IID", "run": {"partition": "iid"}},
                    {"name": "shards", "run": {"partition": "shards"}}],
        "rows": [{"name": "E = 1", "run": {"local-epochs": 1}},
                 {"name": "E = 5", "run": {"local-epochs": 5, "learning-rate": 0.1}}],
    }  # fmt: skip
    return Experiment.model_validate({**values, **changes})


def parsed(keys):
    return with_clients(parse_config(keys))


def line(number, accuracy, **changes):
    """Return a line of a history; every client sends 1 MB a round."""
    values = {
        "round": number, "participants": 10, "rejected": {}, "learning_rate": 0.1,
        "train_loss": 1 / (1 + number), "test_loss": 0.123456, "accuracy": accuracy,
        "total": {"bytes_up": 10_000_000 * number, "bytes_down": 20_000_000 * number},
    }  # fmt: skip
    return {**values, **changes}


def files(config, lines, **summary):
    accuracies = [entry["accuracy"] for entry in lines if entry["accuracy"] is not None]
    content = {
        "status": "finished", "rounds": lines[-1]["round"],
        "target-accuracy": None if config.target == "none" else config.target,
        "rounds-to-target": None,
        "best-accuracy": max(accuracies), "final-accuracy": accuracies[-1],
        "data": "MNIST in /some/where",
        "data-fingerprint": FINGERPRINT, "versions": {"flwr": "1.41.0"}, "seconds": 60.0,
        **summary,
    }  # fmt: skip
    return {
        "config.json": json.dumps({**config.model_dump(by_alias=True), "run-dir": "/elsewhere"}),
        "history.jsonl": "".join(json.dumps(entry) + "\n" for entry in lines),
        "summary.json": json.dumps(content),
    }


def write(folder, config, lines, **summary):
    folder.mkdir(parents=True)
    for name, content in files(config, lines, **summary).items():
        (folder / name).write_text(content)
    return folder


HISTORY = [line(0, 0.1), line(1, 0.85), line(2, 0.95)]


class EndedProcess:
    def __init__(self, status):
        self.returncode = status

    def poll(self):
        return self.returncode


class FakeRuns:
    """A `Launch` without processes: each run has ended as soon as it is launched.

    Attributes:
        started: The configs of those that were started.
        leaves: What a run of a config leaves (its files, None for nothing) and its exit status;
            by default it reaches an accuracy of 0.95 in round 2.
    """

    def __init__(self, leaves=None):
        self.started = []
        self.leaves = leaves or (lambda config: (files(config, HISTORY), 0))

    def __call__(self, config, folder, resumable):
        assert resumable is None
        assert isinstance(config, RunConfig | CentralConfig)
        self.started.append(config)
        left, status = self.leaves(config)
        if left:
            (folder / "run").mkdir()
            for name, content in left.items():
                (folder / "run" / name).write_text(content)
        (folder / "log").write_text("round 1\nerror: the last line\n")
        return EndedProcess(status)
