import pytest

from fedavg_app.config import CentralConfig, RunConfig
from fedavg_app.errors import ConfigError
from paper.experiments import in_order, load
from tests.support.one_line import one_line

TABLE = """
title = "A table"
source = "nobody 1999, table 1"
measure = "rounds-to-target"

[run]
task = "mnist-logistic"
target = 0.9
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
        task="mnist-logistic", target=0.9, batch_size=20, partition="iid",
        learning_rate=0.5,
    )  # fmt: skip
    assert small_iid.grid == ("learning-rate",)
    assert small_iid.runs[3].name == "seed 2, learning-rate 0.3"


def test_arguments_may_be_tables_and_lists_of_them_and_add_up(tmp_path):
    text = TABLE.replace(
        'partition = "shards"', 'partition = "shards", partition-args = { balancedness = 0.9 }'
    ).replace(
        "batch-size = 10, seed = [1, 2]",
        'batch-size = 10, partition-args = ["shards-per-client = 2", { shards-per-client = 3 }]',
    )
    (_, small_other), _ = experiment(tmp_path, text).cells()
    assert [run.config.partition_args for run in small_other.runs] == [
        "balancedness = 0.9, shards-per-client = 2", "balancedness = 0.9, shards-per-client = 3",
    ]  # fmt: skip


def test_rows_from_another_file_are_its_runs_without_what_belongs_to_its_columns(tmp_path):
    whole = experiment(tmp_path)
    rest = (
        TABLE[: TABLE.index("[run]")] + TABLE[TABLE.index("[[columns]]") : TABLE.index("[[rows]]")]
    )
    (tmp_path / "other.toml").write_text('rows_from = "table.toml"\n' + rest)
    other = load(tmp_path / "other.toml")
    ours, theirs = (
        [run.config for _, run in in_order(experiment.cells())] for experiment in (other, whole)
    )
    assert ours == theirs
    assert [row.paper for row in other.rows] == [[], []]
    (tmp_path / "table.toml").write_text(rest)
    with pytest.raises(ConfigError, match=r"other.toml.*: rows: "):
        load(tmp_path / "other.toml")
    (tmp_path / "table.toml").unlink()
    with pytest.raises(ConfigError, match=r"table.toml.*: give a TOML file .*No such file"):
        load(tmp_path / "other.toml")


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
        ("[3, ", "[3, 4, ", "paper of row 'small' has 3 entries; give one for each"),
        ("title =", "titel =", "title: Field required"),
        ('"rounds-to-target"', '"rounds"', "measure: Input should be 'rounds-to-target'"),
        ("[run]", "[run", "table.toml': give a TOML file"),
    ],
)
def test_invalid_file_is_rejected_in_one_line(tmp_path, old, new, message):
    with one_line(ConfigError, message):
        experiment(tmp_path, TABLE.replace(old, new))
