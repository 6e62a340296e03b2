import shlex
import sys
from pathlib import Path

import pytest

from fedavg_app.cli.main import main
from fedavg_app.config import CentralConfig, RunConfig
from fedavg_app.errors import ConfigError, DivergedError, NoRepliesError, RunError
from fedavg_app.results.metrics import TrainingResult
from fedavg_app.server.run_components import load_task
from paper.experiments import in_order
from paper.records import (
    STATUSES,
    Stored,
    by_run,
    command_line,
    find,
    identity,
    read_all,
    read_run,
    write,
)
from tests.support import fake_runs
from tests.support.fake_runs import HISTORY, experiment, line

ROOT = Path(__file__).parents[3]
CONFIG = in_order(experiment().cells())[0][1].config
# Keys that say where and how a run is done, each with a value that is not the default.
WITHOUT_EFFECT = {
    "data-dir": "/some/where", "device": "cuda", "run-dir": "/elsewhere", "min-nodes": 3,
    "node-timeout": 7.5, "checkpoint-every": 4, "resume": "/elsewhere/run",
}  # fmt: skip
# Another value than the default of each key that has an effect on the result.
WITH_EFFECT = {
    "task": "mnist-cnn", "num-server-rounds": 7, "batch-size": 3, "learning-rate": 0.7,
    "learning-rate-decay": 0.7, "momentum": 0.7, "weight-decay": 0.7, "evaluate-every": 7,
    "target-accuracy": 0.7, "seed": 7, "strategy": "fedsgd", "strategy-args": "a = 7",
    "num-clients": 7, "fraction-train": 0.7, "fraction-evaluate": 0.7, "local-epochs": 7,
    "local-steps": 7, "partition": "shards", "partition-args": "a = 7", "round-timeout": 7.0,
    "over-selection": 0.7, "min-replies": 7, "max-examples": 7, "max-update-norm": 7.0,
    "client-mods": "a.b:c", "num-threads": 7, "data-source": "mirror", "patience": 7,
    "local-arrays": "1.*",
}  # fmt: skip


def fields(kind):
    return [(kind, field.alias) for field in kind.model_fields.values()]


@pytest.mark.parametrize(("kind", "key"), [*fields(RunConfig), *fields(CentralConfig)])
def test_identity_ignores_exactly_the_keys_without_effect_on_the_result(kind, key):
    default = kind(learning_rate=0.1)
    value = (WITHOUT_EFFECT | WITH_EFFECT)[key]
    changed = kind.model_validate({"learning-rate": 0.1, key: value}, by_alias=True)
    assert changed != default
    assert (identity(changed) == identity(default)) == (key in WITHOUT_EFFECT)


@pytest.mark.parametrize("kind", [RunConfig, CentralConfig])
def test_command_of_a_record_contains_no_key_without_effect(kind):
    keys = {field.alias for field in kind.model_fields.values()}
    values = {key: value for key, value in WITHOUT_EFFECT.items() if key in keys}
    if kind is RunConfig:
        values["num-clients"] = 100  # as the configs of experiments have it
    command = command_line(kind.model_validate({**values, "batch-size": 3}))
    _, _, subcommand, _, arguments = command.split(" ", 4)
    assert subcommand == ("run" if kind is RunConfig else "central")
    assert arguments == "mnist-2nn --batch-size 3 --seed 1"


def test_record_contains_no_key_without_effect(tmp_path):
    for left_out in ("data-dir", "data-source"):  # a config may have one of the two only
        changes = {key.replace("-", "_"): v for key, v in WITHOUT_EFFECT.items() if key != left_out}
        folder = tmp_path / f"run-without-{left_out}"
        fake_runs.write(folder, CONFIG.model_copy(update=changes), HISTORY)
        record = read_run(folder)
        assert not WITHOUT_EFFECT.keys() & record.config.keys()
        assert record.identity == identity(CONFIG)


def test_auto_learning_rate_is_identified_by_the_default_of_task(tmp_path):
    rate = load_task(CONFIG).learning_rate
    given = CONFIG.model_copy(update={"learning_rate": rate})
    assert CONFIG.learning_rate == "auto"
    assert identity(CONFIG) == identity(given)
    # A record of the same config made when the default was another one is of another run.
    folder = tmp_path / "run"
    then = read_run(fake_runs.write(folder, CONFIG, [line(1, 0.9)], **{"learning-rate": 7.0}))
    assert then.identity == identity(given.model_copy(update={"learning_rate": 7.0}))


@pytest.mark.parametrize("status", ["finished", "diverged"])
@pytest.mark.parametrize("reason", [None, "no usable reply in 3 rounds in a row: no such file"])
def test_finished_and_diverged_runs_are_records_whatever_the_reason(tmp_path, status, reason):
    folder = fake_runs.write(tmp_path / "run", CONFIG, HISTORY, status=status, reason=reason)
    assert read_run(folder).status == status


@pytest.mark.parametrize("status", ["failed", "no-replies", "interrupted"])
def test_other_runs_are_no_records_whatever_the_reason(tmp_path, status):
    reason = "no usable reply in 3 rounds in a row: array 'b' has NaN or infinite values"
    folder = fake_runs.write(tmp_path / "run", CONFIG, HISTORY, status=status, reason=reason)
    assert read_run(folder) is None


@pytest.mark.parametrize(
    ("error", "is_record"),
    [
        (None, True),
        (DivergedError("the loss is not finite"), True),
        (NoRepliesError("no usable reply"), False),
        (RunError("the disk is full"), False),
        (ValueError("a defect"), False),
        (KeyboardInterrupt(), False),
    ],
    ids=lambda value: type(value).__name__,
)
def test_statuses_of_records_are_those_that_the_server_writes(error, is_record):
    assert (TrainingResult([], error=error).status in STATUSES) == is_record


def test_folder_of_run_in_progress_is_no_record(tmp_path):
    folder = fake_runs.write(tmp_path / "run", CONFIG, HISTORY)
    (folder / "summary.json").unlink()
    assert read_run(folder) is None


def test_damaged_folder_of_a_run_is_reported(tmp_path):
    folder = fake_runs.write(tmp_path / "run", CONFIG, HISTORY)
    (folder / "history.jsonl").write_text("{")
    with pytest.raises(ConfigError, match=rf"run = '{folder}': is not a run's folder"):
        read_run(folder)


def test_run_that_reached_its_target_is_that_of_configs_with_more_rounds(tmp_path):
    given = CONFIG.model_copy(update={"num_server_rounds": 50})
    for reached in (None, 17.5):
        lines = [line(0, 0.1), line(18, 0.95)]
        folder = tmp_path / f"run-{reached}"
        record = read_run(fake_runs.write(folder, given, lines, **{"rounds-to-target": reached}))
        known = {record.identity: Stored(folder, record, record.identity)}
        found = {
            rounds: find(known, given.model_copy(update={"num_server_rounds": rounds})) is not None
            for rounds in (17, 18, 50, 400)
        }
        assert found == {17: False, 18: bool(reached), 50: True, 400: bool(reached)}
        other = given.model_copy(update={"num_server_rounds": 400, "seed": 9})
        assert find(known, other) is None


def test_record_holds_config_command_versions_and_condensed_history(tmp_path):
    lines = [
        line(0, 0.1, train_loss=None), line(1, None, rejected={"5": "NaN"}),
        line(2, 0.95, train_loss=0.0123456, rejected={"5": "NaN", "7": "late"}),
        line(3, 0.9, rejected={"8": "late"}),
    ]  # fmt: skip
    config = CONFIG.model_copy(update={"data_dir": "/some/where"})
    record = read_run(fake_runs.write(tmp_path / "run", config, lines))
    assert record.history.model_dump() == {
        "round": [0, 2, 3], "accuracy": [0.1, 0.95, 0.9], "train_loss": [None, 0.01235, 0.25],
        "test_loss": [0.1235, 0.1235, 0.1235], "bytes_up": [0, 20_000_000, 30_000_000],
        "bytes_down": [0, 40_000_000, 60_000_000], "rejected": [0, 3, 1],
    }  # fmt: skip
    assert record.data == "MNIST in data-dir"
    assert record.command == (
        "python simulation.py run --task mnist-logistic --target-accuracy 0.9 --seed 1"
    )
    assert record.versions == {"flwr": "1.41.0"}
    assert record.identity == identity(CONFIG)
    assert "/some" not in record.model_dump_json()


def test_record_of_a_thousand_rounds_is_small(tmp_path):
    lines = [line(number, number / 7000, train_loss=1 / (number + 7)) for number in range(1001)]
    path = tmp_path / "records" / "record.json"
    path.parent.mkdir()
    write(read_run(fake_runs.write(tmp_path / "run", CONFIG, lines)), path)
    assert path.stat().st_size < 60_000
    (stored,) = read_all(path.parent)
    assert stored.record.history.round == list(range(1001))


def test_damaged_record_is_reported_with_what_to_do(tmp_path):
    (tmp_path / "half.json").write_text('{"status": "finished", ')
    with pytest.raises(ConfigError, match=r"half.json': is not the record of a run .*delete it"):
        read_all(tmp_path)


def test_records_on_other_data_are_left_out_where_a_fingerprint_is_given(tmp_path):
    record = read_run(fake_runs.write(tmp_path / "run", CONFIG, HISTORY))
    stored = Stored(tmp_path, record, record.identity)
    assert by_run([stored], fake_runs.FINGERPRINT) == by_run([stored]) == {identity(CONFIG): stored}
    assert by_run([stored], "0" * 64) == {}


@pytest.mark.parametrize(
    "config",
    [
        RunConfig(strategy="stc", strategy_args="sparsity-up = 0.04, scope = 'model'", seed=7),
        RunConfig(partition="classes", partition_args="classes-per-client = 2", batch_size=0),
        RunConfig(strategy_args='weights = "samples"', learning_rate=0.0464, momentum=0.9),
        CentralConfig(task="cifar10-cnn", num_threads=2, learning_rate=0.1),
    ],
)
def test_command_of_a_record_parses_to_the_same_config(monkeypatch, config):
    parsed = []
    monkeypatch.setattr(
        "fedavg_app.ray_engine.simulation.simulate", lambda config, *_: parsed.append(config)
    )
    monkeypatch.setattr(
        "fedavg_app.central_sgd.train_centrally", lambda config, *_: parsed.append(config)
    )
    monkeypatch.setattr(sys, "argv", shlex.split(command_line(config))[1:])
    assert main() == 0
    values = {name: getattr(parsed[0], name) for name in type(config).model_fields}
    assert type(config)(**values) == config


def test_all_records_of_the_project_are_read_and_have_a_valid_config():
    stored = read_all(ROOT / "results" / "records")
    assert len(stored) >= 128
    for one in stored:
        assert one.record.status in STATUSES
        assert one.record.parsed().task == one.record.config["task"]
        assert len(one.record.history.round) == len(one.record.history.accuracy) > 1
