"""A whole run by `fedavg_app.server_app.run` in one process, with its results on disk."""

import json
import sys
import traceback

import numpy as np
import pytest
from flwr.app import Context, RecordDict
from PIL import Image

from fedavg_app import server_app
from fedavg_app.callbacks.trackers import Plots
from fedavg_app.config import RunConfig, parse_config
from fedavg_app.errors import ConfigError, DivergedError, NoRepliesError
from fedavg_app.partitioning import partition
from fedavg_app.server.preparation import prepare
from fedavg_app.server_app import run
from tasks.data.dataset import DataOptions
from tasks.data.mnist import MNIST
from tests.support import data_slices
from tests.support.in_process import round_of_algorithm_1
from tests.support.in_process import run_here as run_config_here
from tests.support.local_grid import LocalGrid
from tests.support.one_line import one_line
from tests.support.rounding import assert_same_change
from tests.support.run_folders import assert_model, only_folder, read_history, read_summary

CONFIG = {
    "task": "mnist-logistic", "data-source": "embedded", "num-clients": 10, "fraction-train": 0.5,
    "num-server-rounds": 3,
}  # fmt: skip


def run_here(tmp_path, num_nodes=10, tamper=None, callbacks=(), **changes):
    config = parse_config({**CONFIG, "run-dir": str(tmp_path / "runs"), **changes})
    return run_config_here(config, num_nodes, tamper, callbacks)


def everyone(tamper):
    return dict.fromkeys(range(10), tamper)


def test_run_leaves_its_results_in_a_folder(tmp_path):
    keys = {"target": 0.3, "evaluate-every": 2}
    result = run_here(tmp_path, callbacks=[Plots], **keys)
    folder = only_folder(tmp_path / "runs")
    pictures = ("accuracy.png", "accuracy-bytes.png", "loss.png")
    assert {path.name for path in folder.iterdir()} == {
        "best.safetensors", "config.json", "history.jsonl", "model.safetensors", "run.log",
        "summary.json", *pictures, f"result_{folder.name}_communication.json",
    }  # fmt: skip
    assert all(path.stat().st_mode & 0o044 for path in folder.iterdir())

    lines = read_history(folder)
    assert [line["round"] for line in lines] == list(range(len(result.history)))
    assert json.loads((folder / "config.json").read_text())["num-clients"] == 10

    summary = read_summary(folder)
    assert summary["status"] == "finished"
    assert summary["rounds-to-target"] == result.rounds_to_target is not None
    assert summary["bytes-up"] == sum(line["bytes_up"] for line in lines)
    assert "embedded" in summary["data"]

    assert_model(folder, result.model)
    for name in pictures:
        with Image.open(folder / name) as picture:
            assert (picture.format, picture.size) == ("PNG", (1050, 630))


def test_bytes_are_written_as_flowers_benchmark_apps_count_them(tmp_path, monkeypatch):
    """By Flower's own count of the records' bytes, which those apps sum up."""
    counted, push, pull = [], LocalGrid.push_messages, LocalGrid.pull_messages

    def count(messages):
        contents = [message.content for message in messages if "arrays" in message.content]
        counted.extend(sum(part.count_bytes() for part in content.values()) for content in contents)
        return messages

    monkeypatch.setattr(LocalGrid, "push_messages", lambda self, some: push(self, count([*some])))
    monkeypatch.setattr(LocalGrid, "pull_messages", lambda self, ids: count(list(pull(self, ids))))
    run_here(tmp_path, **{"num-server-rounds": 2})
    folder = only_folder(tmp_path / "runs")
    written = json.loads((folder / f"result_{folder.name}_communication.json").read_text())
    assert written["totals"] == {"total_comm_bytes": sum(counted)}
    by_round = [written["train_rounds"][number] for number in ("1", "2")]
    assert [each["comm_bytes_total"] for each in by_round] == [sum(counted) // 2] * 2
    assert [each["round_wall_clock_sec"] for each in by_round] == [
        line["seconds"] for line in read_history(folder)[1:]
    ]


def test_devices_with_the_same_data_of_their_own_are_named(tmp_path):
    own = data_slices.write("mnist", tmp_path / "own")
    config = parse_config({**CONFIG, "partition": "shards", "run-dir": str(tmp_path / "runs")})
    grid = LocalGrid(config.model_dump(by_alias=True), 10)
    for context in grid.contexts.values():
        context.node_config["data-dir"] = str(own)
    history = run(grid, prepare(config)).history
    assert [(record.participants, record.rejected) for record in history[1:]] == [(5, {})] * 3
    folder = only_folder(tmp_path / "runs")
    data = prepare(config).task.dataset(DataOptions(directory=str(own)))
    told = {"fingerprint": data.fingerprint, "examples": 120}
    assert read_summary(folder)["own-data"] == {str(client): told for client in range(10)}
    log = (folder / "run.log").read_text()
    assert "10 of 10 clients train on data of their own" in log
    assert "clients 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 have the same data; give each device" in log


def test_devices_train_on_their_own_data(tmp_path):
    """One has canonical files, one an archive; the third has its partition of the shared set."""
    shared = MNIST.load(DataOptions("embedded")).train
    files, archive = data_slices.write("mnist", tmp_path / "files"), tmp_path / "archive"
    archive.mkdir()
    own = shared.part(slice(70))
    np.savez_compressed(archive / "train.npz", inputs=own.inputs, targets=own.targets)
    keys = {"num-clients": 3, "fraction-train": 1.0, "num-server-rounds": 2, "seed": 5}
    config = parse_config({**CONFIG, **keys, "run-dir": str(tmp_path / "runs")})
    grid = LocalGrid(config.model_dump(by_alias=True), 3)
    for client, key, folder in ((0, "data-dir", files), (1, "data-path", archive)):
        grid.contexts[grid.node(client)].node_config[key] = str(folder)
    prepared = prepare(config)
    result = run(grid, prepared)
    told = read_summary(only_folder(tmp_path / "runs"))["own-data"]
    assert {client: data["examples"] for client, data in told.items()} == {"0": 120, "1": 70}
    # FedAvg by hand: each trains on its own data, and its weight is their number.
    third = partition(prepared.data, "train", config)[2]
    splits = {0: MNIST.load(DataOptions(directory=str(files))).train, 1: own, 2: shared.part(third)}
    task, told = prepared.task, {"learning-rate": 0.04, "local-epochs": 1, "batch-size": 10}
    start = [array.numpy().copy() for array in task.initial_model(5).state_dict().values()]
    weights = start
    for number in (1, 2):
        told |= {"seed": 5, "server-round": number}
        weights = round_of_algorithm_1(task, weights, splits, told)
    assert_same_change([array.numpy() for array in result.model.values()], weights, start)


@pytest.mark.parametrize(
    ("changes", "fragment"),
    [
        ({"strategy-args": "eta = 1"}, "strategy-args = 'eta = 1': FedAvg does not"),
        ({"num-clients": 1001}, "num-clients = 1001: more clients than the 1000 test examples"),
        ({"num-clients": 11}, '--federation-config "num-supernodes=11'),
        ({"device": "cuda"}, "device = 'cuda': no CUDA device"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(tmp_path, monkeypatch, changes, fragment):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with one_line(ConfigError, fragment):
        run_here(tmp_path, **{"node-timeout": 0.1, "fraction-evaluate": 0.1, **changes})
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("strategy", "changes", "warned"),
    [
        ("fedsgd", {"local-epochs": 5, "batch-size": 7}, ["batch-size = 7, local-epochs = 5"]),
        ("fedsgd", {"local-steps": 3}, ["local-steps = 3"]),
        (
            "fedsgd",
            {
                "local-epochs": 5,
                "batch-size": 7,
                "evaluate-after-steps": 2,
                "fraction-evaluate": 1.0,
            },
            ["local-epochs = 5"],
        ),
        ("fedsgd", {}, []),
        ("fedavg", {"local-epochs": 5}, []),
    ],
)
def test_settings_without_effect_are_named(tmp_path, caplog, strategy, changes, warned):
    values = {"strategy": strategy, "num-server-rounds": 1, "learning-rate": 0.01, **changes}
    run_here(tmp_path, **values)
    texts = [
        record.getMessage() for record in caplog.records if ": no effect" in record.getMessage()
    ]
    assert [text.partition(":")[0] for text in texts] == warned


def failing(error):
    def tamper(reply):
        raise error

    return everyone(tamper)


INTERRUPTED = ("interrupted", 0, "interrupted")
# How a run ends: the run's arguments, its error, the status, the rounds and the reason in its
# summary.
ENDS = {
    "diverged": (
        {"task": "mnist-2nn", "learning-rate": 1e6, "num-server-rounds": 9},
        DivergedError, "diverged", 3,
        "NaN or infinite values; give a smaller learning-rate",
    ),
    "no replies": (
        {"round-timeout": 0.05, "num-server-rounds": 9, "tamper": everyone(lambda reply: None)},
        NoRepliesError, "no-replies", 3, "no usable reply in 3 rounds in a row: no reply in time",
    ),
    "interrupted": ({"tamper": failing(KeyboardInterrupt())}, KeyboardInterrupt, *INTERRUPTED),
    "terminated": ({"tamper": failing(SystemExit(143))}, SystemExit, *INTERRUPTED),
    "bug": (
        {"tamper": failing(ZeroDivisionError("a bug"))}, ZeroDivisionError, "failed", 0, "a bug"
    ),
}  # fmt: skip


@pytest.mark.parametrize("end", ENDS)
def test_summary_says_how_and_why_a_run_failed(tmp_path, end):
    changes, error, status, rounds, reason = ENDS[end]
    with pytest.raises(error) as caught:
        run_here(tmp_path, **changes)
    folder = only_folder(tmp_path / "runs")
    summary = read_summary(folder)
    assert (summary["status"], summary["rounds"]) == (status, rounds)
    assert reason in summary["reason"]
    assert (folder / "model.safetensors").exists()  # as it was after the last round
    assert type(caught.value).__name__ in (folder / "run.log").read_text()
    assert len(read_history(folder)) == rounds + 1


def test_app_passes_on_the_reason_of_a_failure_without_its_frames(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "tracebacklimit", 1000, raising=False)  # undoes what the app sets
    config = {**RunConfig().model_dump(by_alias=True), "batch-size": -1}
    context = Context(run_id=1, node_id=1, node_config={}, state=RecordDict(), run_config=config)
    with pytest.raises(ConfigError) as caught:
        server_app.app(LocalGrid(config, 1), context)
    printed = traceback.format_exception(caught.value)  # as Flower does
    assert len(printed) == 1
    assert printed[0].startswith("fedavg_app.errors.ConfigError: batch-size = -1: should be")
