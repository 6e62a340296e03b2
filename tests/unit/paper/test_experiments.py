from pathlib import Path

import pytest

from fedavg_app.config import CentralConfig, RunConfig, parse_arguments
from fedavg_app.errors import ConfigError
from paper.experiments import in_order, load

ROOT = Path(__file__).parents[3]

TABLE = """
title = "A table"
source = "nobody 1999, table 1"
measure = "rounds-to-target"

[run]
task = "mnist-logistic"
target-accuracy = 0.9
batch-size = 20

[[columns]]
name = "IID"
run = { partition = "iid", learning-rate = [0.1, 0.3] }

[[columns]]
name = "non-IID"
run = { partition = "shards", learning-rate = 0.2 }

[[rows]]
name = "small"
run = { batch-size = 10, seed = [1, 2] }
paper = [3, ""]

[[rows]]
name = "large"
run = { learning-rate = 0.5 }
"""


def experiment(tmp_path, text=TABLE):
    path = tmp_path / "table.toml"
    path.write_text(text)
    return load(path)


def test_keys_of_row_override_those_of_column_and_these_those_of_table(tmp_path):
    (small_iid, small_other), (large_iid, _) = experiment(tmp_path).cells()
    assert [(run.config.learning_rate, run.config.seed) for run in small_iid.runs] == [
        (0.1, 1), (0.1, 2), (0.3, 1), (0.3, 2),
    ]  # fmt: skip
    assert {run.config.batch_size for run in small_iid.runs} == {10}
    assert [(run.config.learning_rate, run.config.seed) for run in small_other.runs] == [
        (0.2, 1), (0.2, 2),
    ]  # fmt: skip
    (only,) = large_iid.runs
    assert only.config == RunConfig(
        num_clients=100,
        task="mnist-logistic", target_accuracy=0.9, batch_size=20, partition="iid",
        learning_rate=0.5,
    )  # fmt: skip
    assert small_iid.runs[3].chosen == {"learning-rate": 0.3, "seed": 2}


def test_strategy_arguments_of_table_column_and_row_are_joined(tmp_path):
    text = """
title = "t"
source = "s"
measure = "best-accuracy"
run = { strategy = "stc", strategy-args = "scope = 'model'" }
columns = [{ name = "c", run = { strategy-args = "sparsity-down = 0.1" } }, { name = "d" }]
rows = [{ name = "r", run = { strategy-args = "sparsity-up = 0.2" } }]
"""
    ((both, one),) = experiment(tmp_path, text).cells()
    assert parse_arguments("", both.runs[0].config.strategy_args) == {
        "scope": "model", "sparsity_down": 0.1, "sparsity_up": 0.2,
    }  # fmt: skip
    assert parse_arguments("", one.runs[0].config.strategy_args) == {
        "scope": "model",
        "sparsity_up": 0.2,
    }
    with pytest.raises(ConfigError, match="strategy-args"):
        experiment(tmp_path, text.replace("sparsity-up", "sparsity-down")).cells()


def test_runs_are_ordered_by_the_sum_of_their_positions_in_the_grids(tmp_path):
    order = [
        (cell.row.name, cell.column.name, run.config.learning_rate, run.config.seed)
        for cell, run in in_order(experiment(tmp_path).cells())
    ]
    assert order == [
        ("small", "IID", 0.1, 1), ("small", "non-IID", 0.2, 1),
        ("large", "IID", 0.5, 1), ("large", "non-IID", 0.5, 1),
        ("small", "IID", 0.1, 2), ("small", "IID", 0.3, 1), ("small", "non-IID", 0.2, 2),
        ("small", "IID", 0.3, 2),
    ]  # fmt: skip


def test_runs_at_the_same_place_of_their_grids_are_ordered_by_their_hours(tmp_path):
    text = TABLE.replace('paper = [3, ""]', "hours = [2, 0.5]") + "hours = [0, 1]\n"
    order = [
        (cell.row.name, cell.column.name, run.depth)
        for cell, run in in_order(experiment(tmp_path, text).cells())
    ]
    assert order == [
        ("large", "IID", 0), ("small", "non-IID", 0), ("large", "non-IID", 0), ("small", "IID", 0),
        ("small", "non-IID", 1), ("small", "IID", 1), ("small", "IID", 1),
        ("small", "IID", 2),
    ]  # fmt: skip


def test_slug_names_only_keys_that_vary_within_the_table(tmp_path):
    slugs = [run.slug for _, run in in_order(experiment(tmp_path).cells())]
    assert slugs[0] == "batch-size-10_partition-iid_learning-rate-0.1_seed-1"
    assert len(set(slugs)) == len(slugs)


@pytest.mark.parametrize(("letter", "lengths"), [("x", {220}), ("δ", {219, 220})])
def test_long_slug_is_cut_and_stays_unique(tmp_path, letter, lengths):
    arguments = "strategy-args = \"uplink = '{0}{1}'\""
    rows = [f"{{ batch-size = 10, {arguments.format(300 * letter, last)} }}" for last in "ab"]
    text = TABLE.replace("{ batch-size = 10, seed = [1, 2] }", rows[0])
    text = text.replace("{ learning-rate = 0.5 }", rows[1])
    slugs = [run.slug for _, run in in_order(experiment(tmp_path, text).cells())]
    assert len(set(slugs)) == len(slugs) == 6
    assert {len(slug.encode()) for slug in slugs} <= lengths


def test_columns_that_differ_only_in_target_share_their_runs(tmp_path):
    text = """
title = "t"
source = "s"
measure = "rounds-to-target"
run = { task = "cifar10-cnn", num-clients = 10 }
columns = [{ name = "80 %", target = 0.8 }, { name = "82 %", target = 0.82 }]
rows = [
    { name = "SGD", central = true, run = { batch-size = 100 }, others = ["", 5] },
    { name = "FedAvg" },
]
"""
    (sgd, _), (fedavg, _) = experiment(tmp_path, text).cells()
    assert sgd.runs[0].config == CentralConfig(task="cifar10-cnn", batch_size=100)
    assert fedavg.runs[0].config == RunConfig(task="cifar10-cnn", num_clients=10)
    assert len(in_order(experiment(tmp_path, text).cells())) == 2


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "paper = [3, ",
            "paper = [3, 4, ",
            "paper of row 'small' has 3 entries; give one for each",
        ),
        ("title =", "titel =", "title: Field required"),
        ('"rounds-to-target"', '"rounds"', "measure: Input should be 'rounds-to-target'"),
        ("[0.1, 0.3]", "[]", "learning-rate has no values; give one, or a list of some"),
        ("[run]", "[run", "table.toml': is not TOML"),
    ],
)
def test_invalid_file_is_rejected_in_one_line(tmp_path, old, new, message):
    with pytest.raises(ConfigError) as caught:
        experiment(tmp_path, TABLE.replace(old, new))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("batch-size = 10", "bach-size = 10", "'table': small, IID: bach-size = 10: unknown key"),
        ("learning-rate = 0.5", "learning-rate = -1", "'table': large, IID: learning-rate = -1:"),
    ],
)
def test_invalid_run_is_reported_with_its_cell_and_key(tmp_path, old, new, message):
    with pytest.raises(ConfigError) as caught:
        experiment(tmp_path, TABLE.replace(old, new)).cells()
    assert message in str(caught.value)


def test_all_problems_of_a_file_are_named_at_once(tmp_path):
    text = TABLE.replace("batch-size = 10", "bach-size = 10")
    text = text.replace("learning-rate = 0.5", "learning-rate = -1")
    with pytest.raises(ConfigError) as caught:
        experiment(tmp_path, text).cells()
    assert "bach-size = 10: unknown key" in str(caught.value)
    assert "learning-rate = -1:" in str(caught.value)
    broken = TABLE.replace("measure", "mesure") + "remarks = 3\n"
    with pytest.raises(ConfigError, match=r"measure: Field required.*mesure: Extra inputs"):
        experiment(tmp_path, broken)


def test_missing_file_is_reported(tmp_path):
    with pytest.raises(ConfigError, match=r"none.toml': cannot be read \(No such file"):
        load(tmp_path / "none.toml")


@pytest.mark.parametrize(
    "path", sorted((ROOT / "paper" / "experiments").glob("*.toml")), ids=lambda p: p.stem
)
def test_each_experiment_of_the_project_is_valid(path):
    runs = in_order(load(path).cells())
    # The slug is the record's file name: unique, and short enough for what `replacing` adds.
    slugs = {run.slug for _, run in runs}
    assert len(slugs) == len(runs)
    assert max(map(len, slugs)) <= 230
