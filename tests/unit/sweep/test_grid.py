import re

import pytest

from fedavg_app.errors import ConfigError
from fedavg_app.sweep.grid import read_grid

GRID = """
task = "mnist-logistic"
local-steps = 5
seed = [1, 2]

[[variants]]
strategy = "fedavg"
learning-rate = [0.1, 0.2]

[[variants]]
strategy = "stc"
strategy-args = { sparsity-up = 0.04, sparsity-down = 0.04 }
"""


def grid(tmp_path, text):
    (tmp_path / "mine.toml").write_text(text)
    return read_grid(tmp_path / "mine.toml")


def test_every_combination_is_a_separate_run(tmp_path):
    runs = grid(tmp_path, GRID)
    found = [(run.config.strategy, run.config.learning_rate, run.config.seed) for run in runs]
    assert found == [
        ("fedavg", 0.1, 1), ("fedavg", 0.2, 1), ("fedavg", 0.1, 2), ("fedavg", 0.2, 2),
        ("stc", "auto", 1), ("stc", "auto", 2),
    ]  # fmt: skip
    assert {run.config.local_steps for run in runs} == {5}
    assert runs[4].config.strategy_args == "sparsity-up = 0.04, sparsity-down = 0.04"
    assert runs[1].name == "seed 1, fedavg, learning-rate 0.2"
    assert len({run.slug for run in runs}) == 6
    assert [run.slug for run in grid(tmp_path, GRID)] == [run.slug for run in runs]
    changed = grid(tmp_path, GRID.replace("local-steps = 5", "local-steps = 6"))
    assert not {run.slug for run in changed} & {run.slug for run in runs}


def test_same_run_twice_is_run_once(tmp_path):
    (run,) = grid(tmp_path, 'task = "mnist-logistic"\nlearning-rate = [0.1, 0.1]')
    assert run.name == "fedavg"
    assert len(grid(tmp_path, "variants = []")) == 1


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("sed = [1]", "sed = 1: unknown key"),
        ("seed = [1, -1]", "seed = -1: should be greater than or equal to 0"),
        ("seed = []", "give at least one value"),
        (
            "strategy = 'stc'\nstrategy-args = [{ sparsity-up = 0.1 }, { sparsity-up = 'x' }]",
            "sparsity-up = 'x': should be a valid number",
        ),
        ("variants = 3", r"variants = '3': write each as a table \[\[variants\]\]"),
        ("seed = ", "give a TOML file"),
    ],
)
def test_invalid_grid_is_refused_before_anything_runs(tmp_path, text, problem):
    with pytest.raises(ConfigError, match=problem):
        grid(tmp_path, text)


NAMED = """
task = "mnist-logistic"
seed = [1, 2]

[[variants]]
name = "FedAvg"

[[variants]]
name = "STC, p = 1/25"
strategy = "stc"
strategy-args = { sparsity-up = 0.04 }
learning-rate = [0.1, 0.2]
"""


def test_runs_of_a_named_variant_have_its_name_and_the_keys_in_which_they_differ(tmp_path):
    runs = grid(tmp_path, NAMED)
    names = ["FedAvg", "STC, p = 1/25, learning-rate 0.1", "STC, p = 1/25, learning-rate 0.2"]
    assert list(dict.fromkeys(str(run.method) for run in runs)) == names
    assert [run.name for run in runs[:2]] == ["seed 1, FedAvg", "seed 2, FedAvg"]
    unnamed = grid(tmp_path, re.sub("name = .*", "", NAMED))
    assert [run.slug for run in unnamed] == [run.slug for run in runs], "a name is no setting"
    assert str(unnamed[2].method) == "stc, sparsity-up = 0.04, learning-rate 0.1"


def test_name_says_only_the_settings_that_count(tmp_path):
    """Neither no steps where epochs are counted, nor the local work of a single gradient."""
    runs = grid(
        tmp_path,
        """
task = "mnist-logistic"
partition = ["iid", "shards"]
[[variants]]
local-epochs = 5
[[variants]]
local-steps = [25, 0]
[[variants]]
strategy = "fedsgd"
""",
    )
    assert [(run.method.method, run.method.setting) for run in runs[::2]] == [
        ("fedavg", "iid, local-epochs 5"), ("fedavg", "iid, local-steps 25"),
        ("fedavg", "shards, local-steps 25"), ("fedsgd", "iid"),
    ]  # fmt: skip
    assert str(runs[3].method) == "fedavg, iid, local-epochs 1"


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('"FedAvg"', "3", "name = 3: give a text, such as"),
        (
            'name = "FedAvg"',
            'name = "A"\n[[variants]]\nname = "B"',
            "name = 'B': its runs are those",
        ),
        ("seed", 'name = "a"\nseed', "name = 'a': unknown key"),
    ],
)
def test_name_that_cannot_be_used_is_refused(tmp_path, old, new, problem):
    with pytest.raises(ConfigError, match=problem):
        grid(tmp_path, NAMED.replace(old, new, 1))
