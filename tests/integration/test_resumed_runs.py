"""Resumed runs end in the same model as runs that were never interrupted."""

import hashlib
import json
import pickle
import shutil
import sys
from dataclasses import replace
from functools import partial
from types import ModuleType

import pytest
from safetensors.numpy import load_file

from fedavg_app.config import RunConfig, parse_config
from fedavg_app.errors import ConfigError
from fedavg_app.server.preparation import prepare
from fedavg_app.server_app import run
from fedavg_app.sweep.planned_run import finished_folder
from tasks.data.sources import Sources
from tasks.mnist import MNIST_LOGISTIC
from tests.support.local_grid import LocalGrid
from tests.support.run_folders import assert_model, only_folder, read_history, read_summary

CONFIG = {
    "task": "mnist-logistic", "data-source": "embedded", "num-clients": 10, "fraction-train": 0.5,
    "num-server-rounds": 9, "checkpoint-every": 2, "target": "none", "evaluate-every": 3,
}  # fmt: skip
COMPRESSED = {"local-steps": 1, "momentum": 0.9}
LATE = {"links": "phones", "round-timeout": 9, "over-selection": 2}


class PowerLossError(BaseException):
    """The process dies."""


class StatefulGrid(LocalGrid):
    """Saves and restores its clients' states; dies in ``last_round``, after the clients trained."""

    def __init__(self, config: RunConfig, last_round=None):
        super().__init__(config.model_dump(by_alias=True), config.num_clients)
        self._last_round = last_round

    def push_messages(self, messages):
        messages = list(messages)
        ids = super().push_messages(messages)
        configs = [message.content.config_records.get("config", {}) for message in messages]
        if self._last_round in [config.get("server-round", "none") for config in configs]:
            raise PowerLossError
        return ids

    def client_states(self):
        return {
            self.partition(n): pickle.dumps(context.state) for n, context in self.contexts.items()
        }

    def restore_states(self, states):
        for node, context in self.contexts.items():
            context.state = pickle.loads(states[self.partition(node)])


def start(runs, last_round=None, grid_type=None, **changes):
    config = parse_config({**CONFIG, "run-dir": str(runs), **changes})
    return run((grid_type or StatefulGrid)(config, last_round), prepare(config))


def history(folder):
    """Return the lines of a history, without what differs between two runs."""
    return [
        {**line, "seconds": None, "rejected": list(line["rejected"].values())}
        for line in read_history(folder)
    ]


STC = {"strategy": "stc", **COMPRESSED}


@pytest.mark.parametrize(
    ("last_round", "changes"),
    [
        (4, {"momentum": 0.9, "validation": 0.1}),
        (1, STC),
        (4, {"checkpoint-every": 0, "checkpoint-seconds": 1e-9}),
        (5, {**STC, "links": "phones", "round-timeout": 0.3, "over-selection": 0.2}),
        (5, {"strategy": "fedbuff", **LATE}),
        (5, {**STC, "strategy-args": "max-staleness = 50", **LATE}),
        pytest.param(9, STC, marks=pytest.mark.slow),
        (6, {"strategy": "signsgd", **COMPRESSED}),
        (5, {"strategy": "scaffold"}),
        (5, {"strategy": "secure-sum"}),
        (5, {"strategy": "cafe"}),
        pytest.param(4, {"strategy": "flwr.serverapp.strategy:FedAdam"}, marks=pytest.mark.slow),
        (4, {"strategy-args": "server-optimizer = {name = 'adam', learning-rate = 0.01}"}),
        (6, {"strategy": "topk", "strategy-args": "server-optimizer = 'yogi'", **COMPRESSED}),
    ],
    ids=lambda value: value.get("strategy", "fedavg") if isinstance(value, dict) else str(value),
)
def test_interrupted_and_resumed_run_ends_in_the_same_model_and_history(
    tmp_path, last_round, changes
):
    start(tmp_path / "whole", **changes)
    whole = only_folder(tmp_path / "whole")
    with pytest.raises(PowerLossError):
        start(tmp_path / "cut", last_round, **changes)
    cut = only_folder(tmp_path / "cut")
    with (cut / "history.jsonl").open("a") as file:
        file.write('{"round": 10, "half a li')
    start(tmp_path / "elsewhere", resume=str(cut), **changes)

    assert_model(cut, whole)
    assert_model(cut, whole, "best.safetensors")
    assert history(cut) == history(whole)
    assert read_summary(cut)["status"] == "finished"
    assert not (tmp_path / "elsewhere").exists()
    assert json.loads((cut / "config.json").read_text())["resume"] == ""


def test_run_that_died_after_its_last_checkpoint_saves_the_model_of_its_history(tmp_path):
    due = {"checkpoint-every": 3}  # of nine rounds
    start(tmp_path, **due)
    folder = only_folder(tmp_path)
    files = ("model.safetensors", "best.safetensors")
    expected = {name: load_file(folder / name) for name in files}
    for name in [*expected, "summary.json"]:
        (folder / name).unlink()
    start(tmp_path, resume=str(folder), **due)
    for name, arrays in expected.items():
        assert_model(folder, arrays, name)
    assert read_summary(folder)["final-accuracy"] == history(folder)[-1]["accuracy"]


def test_run_on_other_data_is_not_resumed(tmp_path):
    start(tmp_path)
    folder = only_folder(tmp_path)
    before = (folder / "history.jsonl").read_bytes()
    path = folder / "checkpoint"
    keys, state = pickle.loads(path.read_bytes()[:-32])
    content = pickle.dumps((keys, replace(state, data="0")))
    path.write_bytes(content + hashlib.sha256(content).digest())
    with pytest.raises(ConfigError, match="the run to resume was trained on other data"):
        start(tmp_path, resume=str(folder))
    assert (folder / "history.jsonl").read_bytes() == before


class ForgetfulGrid(StatefulGrid):
    """Keeps no clients' states, as over a network: the clients of a resumed run are new."""

    client_states = restore_states = None


start_forgetful = partial(start, grid_type=ForgetfulGrid)


def test_resumed_run_loses_no_round_to_clients_without_their_states(tmp_path):
    with pytest.raises(PowerLossError):
        start_forgetful(tmp_path, 7, **STC)
    start_forgetful(tmp_path, resume=str(only_folder(tmp_path)), **STC)
    records = history(only_folder(tmp_path))
    assert [record["rejected"] for record in records] == [[]] * 10
    # All five are sent the full model; before the interruption most were sent updates.
    assert records[7]["bytes_down"] > 5 * 7850 * 4 > records[6]["bytes_down"]


@pytest.mark.parametrize("changes", [{"strategy": "topk", **COMPRESSED}, {"strategy": "scaffold"}])
def test_run_started_by_flwr_run_resumes_in_a_simulation_with_the_same_result(tmp_path, changes):
    """The simulation's clients are new: the server forgets what it knows of the others."""
    runs = tmp_path / "a", tmp_path / "b"
    with pytest.raises(PowerLossError):
        start_forgetful(runs[0], 7, **changes)
    shutil.copytree(*runs)
    for folder, resume in zip(runs, (start_forgetful, start), strict=True):
        resume(tmp_path, resume=str(only_folder(folder)), **changes)
    assert_model(*map(only_folder, runs))


def test_run_on_the_embedded_part_resumes_with_it_when_the_whole_data_set_is_available(
    tmp_path, monkeypatch
):
    with pytest.raises(PowerLossError):
        start(tmp_path, 5)
    folder = only_folder(tmp_path)
    monkeypatch.setattr(Sources, "_first_available", lambda _: pytest.fail("asked again"))
    start(tmp_path, resume=str(folder), **{"data-source": "auto"})
    assert read_summary(folder)["status"] == "finished"


def test_killed_resumed_run_is_not_finished(tmp_path):
    start(tmp_path)
    folder = only_folder(tmp_path)
    assert read_summary(folder)["status"] == "finished"
    with pytest.raises(PowerLossError):
        start(tmp_path, 11, resume=str(folder), **{"num-server-rounds": 20})
    assert finished_folder(tmp_path) is None


class EditedTask(ModuleType):
    """The module of a task whose defaults a user may edit before a run of it is resumed."""

    def edit(self, **changes):
        self.TASK = replace(MNIST_LOGISTIC, **changes)


def test_resumed_run_keeps_the_values_that_auto_had_at_its_start(tmp_path, monkeypatch):
    module = EditedTask("edited_task")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    keys = {"task": "edited_task:TASK", "learning-rate-decay": 0.5, "links": "4g"}
    keys["target"] = "auto"
    before = {"learning_rate": 0.08, "embedded_target": 0.99, "seconds_per_example": 1e-3}
    module.edit(**before)
    start(tmp_path / "whole", **keys)
    with pytest.raises(PowerLossError):
        start(tmp_path / "cut", 5, **keys)
    whole, cut = (only_folder(tmp_path / name) for name in ("whole", "cut"))
    later = {"learning_rate": 0.4, "embedded_target": 0.2, "seconds_per_example": 1.0}
    module.edit(**later, learning_rates={"fedavg": 0.3})
    with pytest.raises(PowerLossError):  # it resumes from its second checkpoint the same way
        start(tmp_path, 7, resume=str(cut), **keys)
    start(tmp_path, resume=str(cut), **keys)
    assert_model(cut, whole)
    assert history(cut) == history(whole)
    rates = [line["learning_rate"] for line in history(cut)[1:]]
    assert rates == [0.08 * 0.5**number for number in range(9)]
    keys = ("learning-rate", "target-accuracy", "seconds-per-example")
    assert [read_summary(cut)[key] for key in keys] == [0.08, 0.99, 1e-3]


def test_resume_refuses_a_new_rate_and_accepts_a_new_target(tmp_path):
    auto = {"target": "auto"}
    with pytest.raises(PowerLossError):
        start(tmp_path, 5, **auto)
    folder = only_folder(tmp_path)
    with pytest.raises(ConfigError, match=r"learning-rate = 0\.04: the run to resume has 'auto'"):
        start(tmp_path, resume=str(folder), **auto, **{"learning-rate": 0.04})
    start(tmp_path, resume=str(folder), target=0.5)
    assert read_summary(folder)["target-accuracy"] == 0.5
