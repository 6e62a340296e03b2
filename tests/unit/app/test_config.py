import tomllib

import pytest
from pydantic import ValidationError

from fedavg_app.config import Effect, RunConfig, fields_with, kebab, parse_config
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


def test_removed_key_is_refused_with_what_to_write_instead_unless_it_was_not_used():
    value = "link-work = '4G = {local-steps = 5}': "
    with one_line(ConfigError, value, "give all clients the same local-steps or local-epochs"):
        parse_config({"link-work": "4G = {local-steps = 5}"})
    assert parse_config({"link-work": "", "seed": 3}) == parse_config({"seed": 3})


def test_keys_that_may_differ_on_resume_are_exactly_these():
    assert fields_with(RunConfig, Effect.FREE_ON_RESUME, Effect.NONE) == MAY_DIFFER_ON_RESUME


@pytest.mark.parametrize(
    "values",
    [
        {"local_epochs": 0}, {"local_epochs": 5, "local_steps": 1}, {"strategy_args": "eta ="},
        {"strategy_args": "a-name = 1, a_name = 2"}, {"data_dir": "/data", "data_source": "hub"},
    ],
)  # fmt: skip
def test_incompatible_keys_make_no_config(values):
    with pytest.raises(ValidationError):
        RunConfig(**values)
    with pytest.raises(ConfigError):
        parse_config({kebab(name): value for name, value in values.items()})
