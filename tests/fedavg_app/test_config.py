import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from fedavg_app.config import CentralConfig, RunConfig, arguments, parse_config
from fedavg_app.errors import ConfigError
from fedavg_app.plan import make_plan
from tasks.mnist import MNIST_2NN

ROOT = Path(__file__).parents[2]


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
        ("num-clients", 0),
        ("num-server-rounds", 0),
        ("learning-rate", 0.0),
        ("learning-rate", -1.0),
        ("learning-rate", "fast"),
        ("learning-rate-decay", 1.5),
        ("momentum", -0.1),
        ("momentum", 1.0),
        ("momentum", "nesterov"),
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
def test_a_bad_value_gives_one_line_with_key_and_value(key, value):
    with pytest.raises(ConfigError) as caught:
        parse_config({key: value})
    text = str(caught.value)
    assert text.startswith(f"{key} = {value!r}: ")
    assert "\n" not in text
    assert len(text) > len(f"{key} = {value!r}: ") + 5


def test_an_unknown_key_names_the_known_ones():
    with pytest.raises(ConfigError, match=r"known:.*batch-size"):
        parse_config({"batchsize": 1})
    with pytest.raises(ConfigError, match="unknown key"):
        parse_config({"batch_size": 1})


def test_no_local_work_at_all_is_refused():
    with pytest.raises(ConfigError, match="local-epochs = 0"):
        parse_config({"local-epochs": 0})
    assert parse_config({"local-epochs": 0, "local-steps": 1}).local_steps == 1


def test_a_directory_and_a_source_contradict_each_other():
    with pytest.raises(ConfigError, match="data-source = 'mirror'"):
        parse_config({"data-dir": "/x", "data-source": "mirror"})


def test_arguments_are_toml_with_kebab_case_names():
    assert arguments("strategy-args", "") == {}
    assert arguments("strategy-args", "eta = 0.01, tau=1e-3, a-name = 'x', on = true") == {
        "eta": 0.01,
        "tau": 1e-3,
        "a_name": "x",
        "on": True,
    }


def test_auto_takes_the_tasks_rate_for_the_strategy():
    task = replace(MNIST_2NN, learning_rate=0.1, learning_rates={"fedsgd": 0.4})
    rates = {
        values: make_plan(
            RunConfig(strategy=values[0], learning_rate=values[1]), task
        ).learning_rate
        for values in (("fedavg", "auto"), ("fedsgd", "auto"), ("fedsgd", 0.2))
    }
    assert list(rates.values()) == [0.1, 0.4, 0.2]
    assert hash(task) == hash(replace(task))  # as all of a task's other fields allow
    assert make_plan(CentralConfig(), task).learning_rate == 0.1
