import re
import shlex

import pytest

from fedavg_app.config import CentralConfig, RunConfig
from fedavg_app.errors import DivergedError, NoRepliesError, RunError
from fedavg_app.results.finished_run import STATUSES
from fedavg_app.results.history import TrainingResult
from fedavg_app.sweep.planned_run import identity
from paper.experiments import in_order
from paper.records import command_line, read_run
from tests.support import fake_runs
from tests.support.documents import ROOT
from tests.support.fake_runs import experiment, line

CONFIG = in_order(experiment().cells())[0][1].config
# Keys that say where and how a run is done, each with a value that is not the default.
WITHOUT_EFFECT = {
    "data-dir": "/some/where", "device": "cuda", "run-dir": "/elsewhere", "min-nodes": 3,
    "node-timeout": 7.5, "checkpoint-every": 4, "checkpoint-seconds": 4.5,
    "resume": "/elsewhere/run",
}  # fmt: skip
# Another value than the default of each key that has an effect on the result.
WITH_EFFECT = {
    "task": "mnist-cnn", "num-server-rounds": 7, "batch-size": 3, "learning-rate": 0.7,
    "learning-rate-decay": 0.7, "momentum": 0.7, "weight-decay": 0.7, "evaluate-every": 7,
    "seed": 7, "strategy": "fedsgd", "strategy-args": "a = 7",
    "num-clients": 7, "fraction-train": 0.7, "fraction-evaluate": 0.7, "local-epochs": 7,
    "local-steps": 7, "partition": "shards", "partition-args": "a = 7", "round-timeout": 7.0,
    "over-selection": 0.7, "min-replies": 7, "max-examples": 7, "max-update-norm": 7.0,
    "client-mods": "a.b:c", "num-threads": 7, "data-source": "mirror", "patience": 7,
    "local-arrays": "1.*", "links": "4g", "seconds-per-example": 0.7, "objective": "loss",
    "target": 0.7, "optimizer": "adamw", "optimizer-args": "eps = 0.7",
    "gradient-clip": 0.7, "optimizer-state": "kept", "rate-schedule": "linear",
    "precision": "bf16", "budget": "7 MB up", "selection": "power-of-choice", "initial-loss": True,
    "evaluate-after-steps": 7, "validation": 0.7,
}  # fmt: skip


def fields(kind):
    return [(kind, field.alias) for field in kind.model_fields.values()]


@pytest.mark.parametrize(("kind", "key"), [*fields(RunConfig), *fields(CentralConfig)])
def test_identity_ignores_exactly_the_keys_without_effect_on_the_result(kind, key):
    common = {"learning-rate": 0.1}
    if kind is RunConfig:
        common["fraction-evaluate"] = 0.5  # without which no client tests after steps
    default = kind.model_validate(common, by_alias=True)
    value = (WITHOUT_EFFECT | WITH_EFFECT)[key]
    changed = kind.model_validate({**common, key: value}, by_alias=True)
    assert changed != default
    assert (identity(changed) == identity(default)) == (key in WITHOUT_EFFECT)


@pytest.mark.parametrize(
    ("error", "is_record"),
    [
        (None, True), (DivergedError(""), True), (NoRepliesError(""), False),
        (RunError(""), False), (ValueError(), False), (KeyboardInterrupt(), False),
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_statuses_of_records_are_those_that_the_server_writes(error, is_record):
    assert (TrainingResult([], error=error).status in STATUSES) == is_record


def test_record_holds_config_command_versions_and_condensed_history(tmp_path):
    lines = [
        line(0, 0.1, train_loss=None),
        line(1, None, rejected={"5": "NaN"}, virtual_seconds={"round": 2.0, "upload": 1.0}),
        line(2, 0.95, train_loss=0.0123456, rejected={"5": "NaN", "7": "late"}),
        line(3, 0.9, rejected={"8": "late"}, virtual_seconds={"round": 0.5, "upload": 0.1}),
    ]  # fmt: skip
    config = CONFIG.model_copy(update={"data_dir": "/some/where"})
    folder = fake_runs.write(tmp_path / "run", config, lines)
    (folder / "model.safetensors").write_bytes(b"abc")
    record = read_run(folder)
    # FIPS 180-2, appendix B.1
    assert record.model == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert re.fullmatch("[0-9a-f]{40}(-dirty)?", record.commit) or not (ROOT / ".git").exists()
    assert record.history.model_dump() == {
        "round": [0, 2, 3], "value": [0.1, 0.95, 0.9], "train_loss": [None, 0.01235, 0.25],
        "test_loss": [0.1235, 0.1235, 0.1235], "bytes_up": [0, 20_000_000, 30_000_000],
        "bytes_down": [0, 40_000_000, 60_000_000], "rejected": [0, 3, 1],
        "virtual_seconds": [0.0, 2.0, 2.5],
    }  # fmt: skip
    assert record.data == "MNIST in data-dir"
    options = "--task mnist-logistic --seed 1 --target 0.9"
    assert record.command == f"python simulation.py run {options}"
    assert record.versions == {"flwr": "1.41.0"}
    assert record.identity == identity(CONFIG)
    assert "/some" not in record.model_dump_json()


def test_record_of_a_run_with_local_arrays_has_the_clients_own_accuracy(tmp_path):
    config = CONFIG.model_copy(update={"local_arrays": "bn*"})
    lines = [line(0, 0.1, client_metrics={}), line(1, 0.2, client_metrics={"accuracy": 0.8})]
    history = read_run(fake_runs.write(tmp_path / "run", config, lines)).history
    assert (history.round, history.value) == ([1], [0.8])


@pytest.mark.parametrize(
    "config",
    [
        RunConfig(strategy="stc", strategy_args="sparsity-up = 0.04, scope = 'model'", seed=7),
        RunConfig(partition="classes", partition_args="classes-per-client = 2", batch_size=0),
        RunConfig(strategy_args='weights = "samples"', learning_rate=0.0464, momentum=0.9),
        CentralConfig(task="cifar10-cnn", num_threads=2, learning_rate=0.1),
    ],
)
def test_command_of_a_record_parses_to_the_same_config(configs, config):
    assert configs(*shlex.split(command_line(config))[2:]) == config
