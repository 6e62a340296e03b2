import tomllib
from pathlib import Path

import pytest

from fedavg_app.config import (
    CentralConfig,
    Effect,
    RunConfig,
    fields_with,
    parse_arguments,
    parse_central,
    parse_config,
)
from fedavg_app.errors import ConfigError

ROOT = Path(__file__).parents[3]
# Runs that differ in these keys only are the same run.
NO_PART_OF_IDENTITY = {
    "run_dir", "data_dir", "device", "checkpoint_every", "resume", "min_nodes", "node_timeout",
}  # fmt: skip
# A resumed run may have other values of these.
MAY_DIFFER_ON_RESUME = {
    "num_server_rounds", "target_accuracy", "patience", "run_dir", "resume", "checkpoint_every",
    "data_dir", "data_source", "device", "round_timeout", "min_nodes", "node_timeout",
}  # fmt: skip


def test_pyproject_declares_exactly_the_keys_and_defaults_of_the_config():
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    assert declared == RunConfig().model_dump(by_alias=True)


def test_every_key_has_a_description():
    assert all(field.description for field in RunConfig.model_fields.values())


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("fraction-train", 1.01),
        ("fraction-train", -0.1),
        ("fraction-train", float("nan")),
        ("local-epochs", -1),
        ("local-steps", -1),
        ("batch-size", -10),
        ("batch-size", 2.5),
        ("batch-size", "ten"),
        ("num-clients", -1),
        ("num-server-rounds", 0),
        ("learning-rate", 0.0),
        ("learning-rate", -1.0),
        ("learning-rate", "fast"),
        ("learning-rate-decay", 1.5),
        ("momentum", -0.1),
        ("momentum", 1.0),
        ("momentum", "nesterov"),
        ("weight-decay", -0.1),
        ("evaluate-every", 0),
        ("target-accuracy", 97),
        ("round-timeout", -1.0),
        ("data-source", "internet"),
        ("device", "tpu"),
        ("seed", -1),
        ("seed", 2**32),
        ("strategy-args", "eta: 0.1"),
        ("partition-args", "{"),
        ("bach-size", 10),
    ],
)
def test_bad_value_gives_one_line_with_key_and_value(key, value):
    with pytest.raises(ConfigError) as caught:
        parse_config({key: value})
    text = str(caught.value)
    assert text.startswith(f"{key} = {value!r}: ")
    assert "\n" not in text
    assert len(text) > len(f"{key} = {value!r}: ") + 5


def test_error_of_an_unknown_key_names_the_known_keys():
    with pytest.raises(ConfigError, match=r"known:.*batch-size"):
        parse_config({"batchsize": 1})
    with pytest.raises(ConfigError, match="unknown key"):
        parse_config({"batch_size": 1})


def test_zero_epochs_without_local_steps_are_refused():
    with pytest.raises(ConfigError, match="local-epochs = 0"):
        parse_config({"local-epochs": 0})
    assert parse_config({"local-epochs": 0, "local-steps": 1}).local_steps == 1


def test_data_dir_with_a_data_source_is_refused():
    with pytest.raises(ConfigError, match="data-source = 'mirror'"):
        parse_config({"data-dir": "/x", "data-source": "mirror"})
    with pytest.raises(ConfigError, match="data-source = 'mirror'"):
        parse_central({"data-dir": "/x", "data-source": "mirror"})


def test_arguments_are_toml_with_kebab_case_names():
    assert parse_arguments("strategy-args", "") == {}
    assert parse_arguments("strategy-args", "eta = 0.01, tau=1e-3, a-name = 'x', on = true") == {
        "eta": 0.01,
        "tau": 1e-3,
        "a_name": "x",
        "on": True,
    }


def test_keys_that_are_no_part_of_a_runs_identity_are_exactly_these():
    assert fields_with(RunConfig, Effect.NONE) == NO_PART_OF_IDENTITY
    central = NO_PART_OF_IDENTITY & set(CentralConfig.model_fields)
    assert fields_with(CentralConfig, Effect.NONE) == central


def test_keys_that_may_differ_on_resume_are_exactly_these():
    assert fields_with(RunConfig, Effect.FREE_ON_RESUME, Effect.NONE) == MAY_DIFFER_ON_RESUME


@pytest.mark.parametrize("key", ["num-clients", "evaluate-evry", "data-source"])
def test_bad_value_for_central_training_gives_one_line_with_the_key(key):
    with pytest.raises(ConfigError) as caught:
        parse_central({key: "nonsense"})
    assert str(caught.value).startswith(f"{key} = 'nonsense': ")
    assert "\n" not in str(caught.value)
