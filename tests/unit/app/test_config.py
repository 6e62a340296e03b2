import tomllib

import pytest
from pydantic import ValidationError

from fedavg_app.config import (
    Effect,
    RunConfig,
    fields_with,
    kebab,
    parse_config,
    parse_saved,
    with_clients,
)
from fedavg_app.errors import ConfigError
from tests.support.documents import ROOT
from tests.support.one_line import one_line

# A resumed run may have other values of these.
MAY_DIFFER_ON_RESUME = {
    "num_server_rounds", "objective", "target", "patience", "run_dir", "resume",
    "checkpoint_every", "checkpoint_seconds", "data_dir", "data_source", "device", "round_timeout",
    "min_nodes", "node_timeout", "budget",
}  # fmt: skip


def test_pyproject_declares_exactly_the_keys_and_defaults_of_the_config():
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    assert declared == RunConfig().model_dump(by_alias=True)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("fraction-train", 1.01), ("fraction-train", float("nan")), ("local-steps", -1),
        ("batch-size", 2.5), ("num-server-rounds", 0), ("learning-rate", 0.0),
        ("learning-rate", "fast"), ("learning-rate-decay", 1.5), ("momentum", 1.0),
        ("weight-decay", -0.1), ("evaluate-every", 0), ("target", "never"),
        ("round-timeout", -1.0), ("data-source", "internet"), ("seed", 2**32),
        ("partition-args", "{"), ("bach-size", 10),
    ],
)  # fmt: skip
def test_bad_value_gives_one_line_with_key_and_value(key, value):
    with one_line(ConfigError) as caught:
        parse_config({key: value})
    _, beginning, reason = str(caught.value).partition(f"{key} = {value!r}: ")
    assert beginning
    assert len(reason) > 5


@pytest.mark.parametrize(
    ("key", "value", "fix"),
    [
        ("link-work", "4G = {}", "give all clients the same local-steps or local-epochs"),
        ("target-accuracy", 0.9, "give target, and none for never"),
        ("partition-by", "age", "give by in partition-args, as in: by = 'bins:10'"),
    ],
)
def test_removed_key_is_refused_with_what_to_write_instead(key, value, fix):
    with one_line(ConfigError, f"{key} = {value!r}: removed; {fix}"):
        parse_config({key: value})


@pytest.mark.parametrize(
    ("saved", "today"),
    [
        ({"link-work": "", "target-accuracy": "auto", "partition-by": ""}, {}),
        ({"target-accuracy": 0.0, "target": "auto"}, {"target": "none"}),
        ({"target-accuracy": 0.97, "target": "auto"}, {"target": 0.97}),
        ({"target-accuracy": "auto", "target": 0.5}, {"target": 0.5}),
        ({"partition-by": "bins:4"}, {"partition_args": 'by = "bins:4"'}),
        (
            {"partition-by": "age", "partition-args": "alpha = 0.1"},
            {"partition_args": 'alpha = 0.1, by = "age"'},
        ),
    ],
)
def test_saved_config_of_an_earlier_version_is_read(saved, today):
    assert parse_saved({"strategy": "stc", **saved}) == with_clients(
        RunConfig(strategy="stc", **today)
    )


def test_keys_that_may_differ_on_resume_are_exactly_these():
    assert fields_with(RunConfig, Effect.FREE_ON_RESUME, Effect.NONE) == MAY_DIFFER_ON_RESUME


@pytest.mark.parametrize(
    "values",
    [
        {"local_epochs": 0}, {"local_epochs": 5, "local_steps": 1}, {"strategy_args": "eta ="},
        {"strategy_args": "a-name = 1, a_name = 2"}, {"data_dir": "/data", "data_source": "mirror"},
    ],
)  # fmt: skip
def test_incompatible_keys_make_no_config(values):
    with pytest.raises(ValidationError):
        RunConfig(**values)
    with pytest.raises(ConfigError):
        parse_config({kebab(name): value for name, value in values.items()})
