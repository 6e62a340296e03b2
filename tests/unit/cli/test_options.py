"""Options of commands, and config files."""

import json

import pytest

from fedavg_app.cli.options import read_config
from fedavg_app.config import CentralConfig, RunConfig, parse
from fedavg_app.errors import ConfigError


def test_option_goes_before_the_file_and_the_file_before_the_default(configs, tmp_path):
    file = tmp_path / "job.toml"
    file.write_text('task = "mnist-cnn"\nbatch-size = 50\nlearning-rate = 0.2\n')
    config = configs("run", "--config", str(file), "--batch-size", "20")
    expected = {"task": "mnist-cnn", "batch_size": 20, "learning_rate": 0.2}
    assert config == RunConfig(**expected)


def test_tables_of_arguments_are_those_of_their_text(configs, tmp_path):
    (tmp_path / "job.toml").write_text("""
partition = "shards"
partition-args = {shards-per-client = 3}
strategy = "compressed"
[strategy-args]
uplink = {name = 'sparse', sparsity = 1e-2}
weights = "samples"
"odd key" = [true, -1, 'a "b" \\c', 0.5]
""")
    config = configs("run", "--config", str(tmp_path / "job.toml"))
    assert config.partition_args.values == {"shards_per_client": 3}
    assert config.strategy_args.values == {
        "uplink": {"name": "sparse", "sparsity": 0.01},
        "weights": "samples",
        "odd key": [True, -1, 'a "b" \\c', 0.5],
    }


def test_central_uses_only_its_own_keys_of_a_runs_config(configs, tmp_path):
    saved = RunConfig(task="mnist-cnn", num_clients=7).model_dump(by_alias=True)
    (tmp_path / "config.json").write_text(json.dumps(saved))
    config = configs("central", "--config", str(tmp_path / "config.json"), "--seed", "9")
    assert isinstance(config, CentralConfig)
    assert (config.task, config.seed) == ("mnist-cnn", 9)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("job.toml", "bach-size = 5", "bach-size = 5: unknown key; did you mean batch-size"),
        ("job.toml", "batch_size = 5", "batch_size = 5: unknown key; did you mean batch-size"),
        ("job.toml", "batch-size 5", "give a TOML file of keys"),
        ("config.json", "{", "give a TOML file of keys"),
        ("config.json", "[1]", "give a TOML file of keys"),
    ],
)
def test_file_without_a_config_is_refused(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError, match=message):
        parse(RunConfig, read_config(tmp_path / name, RunConfig))
