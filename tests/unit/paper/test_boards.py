"""The boards: their numbers against the records' own, and which runs count."""

import json
import math
import re
import sys

import pytest

from fedavg_app.cli.main import run_command_line
from fedavg_app.errors import ConfigError
from paper.__main__ import app
from paper.board_page import show_board, write_page
from paper.boards import MEASURES, load_board, load_boards, load_table, standings
from paper.experiments import in_order
from paper.records import RECORDS, read_all, read_run, write
from tests.support import fake_runs
from tests.support.documents import ROOT
from tests.support.fake_runs import FINGERPRINT, line

BOARDS = ROOT / "paper" / "boards"
# What a step takes for an example on the reference core, from the tasks' documents.
SECONDS = {"mnist-logistic": 6.8e-6, "mnist-2nn": 4.2e-5, "mnist-cnn": 1.3e-3,
           "cifar10-vgg11": 2.2e-3, "paper.tasks.small_gpt:TASK": 2e-3,
           "paper.tasks.shakespeare_gpt:ADAPTERS": 4e-3}  # fmt: skip


def recomputed(path, target):
    """Return MB up, MB both ways and minutes on 4G (5 and 18 Mbit/s, 64 ms) to a target."""
    record = json.loads(path.read_text())
    rows, config = record["history"], record["config"]
    falls = record["summary"].get("objective") == "min perplexity"
    best, before = -math.inf, None
    values = rows.get("value") or rows["accuracy"]  # as older records call it
    points = zip(rows["round"], values, rows["bytes_up"], rows["bytes_down"], strict=True)
    target = -target if falls else target
    for number, shown, up, down in points:
        here, value = [number, up, up + down], -shown if falls else shown
        if value >= target:
            share = (target - best) / (value - best)
            rounds, up, both = (a + share * (b - a) for a, b in zip(before, here, strict=True))
            up, both = (
                sent / 1e6 / (config["fraction-train"] * clients(config)) for sent in (up, both)
            )
            step = config["local-steps"] * config["batch-size"] * SECONDS.get(config["task"], 0)
            seconds = 8 * up / 5 + 8 * (both - up) / 18 + (2 * 0.064 + step) * rounds
            return up, both, seconds / 60
        best, before = max(best, value), here
    return None, None, None


def clients(config):
    number = config["num-clients"]
    return {1146: 1150, 157: 160}.get(number, number)  # 115 of 1,146 in a round, 8 of 157


@pytest.fixture(scope="module")
def stored():
    return read_all(ROOT / "results" / RECORDS)


@pytest.mark.parametrize("board", load_boards(BOARDS), ids=lambda board: board.name)
def test_numbers_are_the_means_of_the_records_and_the_order_is_theirs(board, stored):
    rows = standings(board, stored)
    assert len(rows) > 1
    ranks = []
    for row in rows:
        assert len({run.config["seed"] for run in row.runs}) == len(row.runs)
        for target in board.targets:
            found = [recomputed(run.path, target) for run in row.runs]
            for kind, values in zip(MEASURES, zip(*found, strict=True), strict=True):
                if kind == "minutes-to-target" and not row.scores[target, kind]:
                    untimed = row.settings["strategy"] in ("fedsgd", "secure-sum")
                    assert untimed or not row.settings["local-steps"]
                    continue
                mean = None if None in values else sum(values) / len(values)
                assert row.mean(target, kind) == (mean and pytest.approx(mean, rel=1e-6))
        ranks.append(row.mean(board.targets[-1], "upload-to-target") or float("inf"))
    assert ranks == sorted(ranks)


BOARD = f"""
title = "Tiny | board"
data = "{FINGERPRINT}"
targets = [0.5, 0.9]
run = {{ task = "mnist-logistic", partition = "shards" }}
defaults = {{ local-steps = 1, num-server-rounds = 40 }}
"""


class MadeUp:
    """A board "tiny" and records of runs that send 1 MB a client and a round, and get two."""

    def __init__(self, folder):
        self.folder = folder
        (folder / "boards").mkdir()
        (folder / "boards" / "tiny.toml").write_text(BOARD)
        self.board = load_board(folder / "boards", "tiny")

    def add(self, curve, seed=1, rounds=40, fingerprint=FINGERPRINT, **keys):
        shown = {"num-server-rounds": rounds, "learning-rate": 0.1, "seed": seed, "local-steps": 1}
        given = {"target": 0.9, **self.board.run, **shown, **keys}
        config = fake_runs.parsed(given)
        lines = [line(number, accuracy) for number, accuracy in curve.items()]
        number = len(list(self.folder.glob("runs/*")))
        run = fake_runs.write(
            self.folder / "runs" / str(number), config, lines, **{"data-fingerprint": fingerprint}
        )
        folder = self.folder / RECORDS
        folder.mkdir(exist_ok=True)
        write(read_run(run).model_copy(update={"commit": ""}), folder / f"{number}.json")

    def shown(self):
        return show_board(self.board, standings(self.board, read_all(self.folder / RECORDS)))

    def rows(self):
        return [
            (row["place"], row["name"], row["numbers"], *row["cells"][3:5], *row["cells"][:2])
            for row in self.shown()["rows"]
        ]


ARRIVES = {0: 0.1, 10: 0.5, 20: 0.9}


def test_target_that_not_all_seeds_reach_has_no_mean(tmp_path):
    made = MadeUp(tmp_path)
    made.add(ARRIVES, seed=1, strategy="stc")
    made.add({0: 0.1, 5: 0.5, 40: 0.7}, seed=2, strategy="stc")
    made.add(ARRIVES, seed=1)
    made.add({0: 0.1, 20: 0.5, 40: 0.9}, seed=2)
    made.add({0: 0.1, 40: 0.3}, strategy="topk")
    assert made.rows() == [
        ("1", "fedavg", "1, 2", "15 (10 to 20)", "45 (30 to 60)", "30 (20 to 40)",
         "90 (60 to 120)"),
        ("\N{EN DASH}", "stc", "1, 2", "7.5 (5 to 10)", "22.5 (15 to 30)", *["1 of 2 seeds"] * 2),
        ("\N{EN DASH}", "topk", "1", *["not reached"] * 4),
    ]  # fmt: skip
    page = write_page(tmp_path / "boards", tmp_path).read_text()
    assert "Tiny | board" in page
    assert "- **1** `python simulation.py run --task mnist-logistic" in page


def test_only_runs_that_can_be_compared_are_on_the_board(tmp_path):
    made = MadeUp(tmp_path)
    made.add(ARRIVES)
    made.add({0: 0.1, 1: 0.5}, seed=2, target=0.5)  # ended before the board's end
    made.add({0: 0.1, 1: 0.95}, seed=3, partition="iid")
    made.add({0: 0.1, 1: 0.95}, seed=4, **{"fraction-train": 0.2})
    made.add({0: 0.1, 1: 0.95}, seed=5, fingerprint=64 * "0")
    made.add({0: 0.1, 1: 0.95}, seed=6, links="4g")
    made.add({0: 0.1, 20: 0.99}, seed=7, target=0.99)
    assert [row[2] for row in made.rows()] == ["1, 7"]


def test_shorter_runs_count_where_all_of_them_arrive(tmp_path):
    made = MadeUp(tmp_path)
    made.add({0: 0.1, 30: 0.9}, seed=1, rounds=80)
    made.add(ARRIVES, seed=2)
    assert [row[2] for row in made.rows()] == ["1, 2"]
    made.add({0: 0.1, 40: 0.7}, seed=3)  # with more rounds it might have
    assert [row[2] for row in made.rows()] == ["1"]


def test_unknown_values_of_a_row_are_dashes(tmp_path):
    made = MadeUp(tmp_path)
    made.add(ARRIVES, **{"local-steps": 0})
    shown = made.shown()
    assert [shown["rows"][0][key] for key in ("commit", "models")] == ["\N{EN DASH}"] * 2
    assert [len(kinds) for _, kinds in shown["heads"]] == [2, 2]  # no row has minutes
    made.add(ARRIVES, strategy="stc")
    minutes = [row["cells"][5] for row in made.shown()["rows"]]
    assert minutes[0] == "\N{EN DASH}"  # of an epoch
    # 10 MB up and 20 MB down, two round trips in each of 10 rounds, and 100 examples
    assert float(minutes[1]) == pytest.approx(
        (80 / 5 + 160 / 18 + 20 * 0.064 + 100 * SECONDS["mnist-logistic"]) / 60, rel=0.01
    )


ENTRY = 'board = "{board}"\nrows = [{{ name = "mine", run = {{ {run} }} }}]\n'


@pytest.mark.parametrize(
    ("board", "run", "fragment"),
    [
        ("none", "", "board = 'none': there is no such board in paper/boards"),
        ("mnist-2nn", "strategy = 'nope'", "strategy = 'nope': "),
        ("mnist-2nn", "strategy = 'my_own:Strategy'", "there is no module 'my_own'"),
        ("mnist-2nn", "strategy = 'stc', strategy-args = 'p = 3'", "strategy-args = 'p = 3': "),
        ("mnist-2nn", "partition = 'shards'", "partition = 'shards': all "),
        ("mnist-2nn", "rate = 1", "rate = 1: unknown key"),
        ("mnist-2nn", "seed = 'a'", "seed = 'a': "),
    ],
)  # fmt: skip
def test_entry_that_cannot_be_made_is_refused_in_one_line(
    monkeypatch, capsys, tmp_path, board, run, fragment
):
    monkeypatch.chdir(ROOT)
    path, results = tmp_path / "entry.toml", tmp_path / "results"
    path.write_text(ENTRY.format(board=board, run=run))
    monkeypatch.setattr(sys, "argv", ["paper", "sweep", str(path), f"--results={results}"])
    assert run_command_line(app) == 1
    error = capsys.readouterr().err
    assert fragment in error
    assert len(error.strip().splitlines()) == 1
    assert not results.exists()


def test_entry_has_the_boards_keys_and_its_own_local_work(tmp_path):
    (tmp_path / "tiny.toml").write_text(BOARD)
    path = tmp_path / "entry.toml"
    path.write_text(ENTRY.format(board="tiny", run="strategy = 'stc', local-epochs = 1"))
    table = load_table(path, tmp_path)
    assert (table.name, table.data, table.board) == ("board-tiny", FINGERPRINT, "tiny")
    configs = [run.config for _, run in in_order(table.cells())]
    assert [config.seed for config in configs] == [1, 2, 3]
    for config in configs:
        assert (config.local_epochs, config.local_steps, config.target) == (1, 0, 0.9)
        assert (config.partition, config.num_server_rounds) == ("shards", 40)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (
            "[0.5, 0.9]",
            "[0.9, 0.5]",
            "targets = [0.9, 0.5]: give each once, each better than",
        ),
        ("[0.5, 0.9]", "[50, 90]", "targets = [50.0, 90.0]: give accuracies, as shares of 1"),
        ("[0.5, 0.9]", "[]", "targets: List should have at least 1 item"),
        ('partition = "shards"', "local-steps = 5", "run.local-steps: entries choose it"),
        ('partition = "shards"', "split = 5", "split = 5: unknown key"),
        ("local-steps = 1", "seed = 1", "seed = 1: all entries of tiny share it"),
        ("title =", "title", "Expected '=' after a key"),
    ],
)
def test_board_that_cannot_be_used_is_refused(tmp_path, old, new, reason):
    (tmp_path / "tiny.toml").write_text(BOARD.replace(old, new))
    with pytest.raises(
        ConfigError, match=f"^board = '{tmp_path}/tiny.toml': .*{re.escape(reason)}"
    ):
        load_boards(tmp_path)


def test_entry_on_other_data_is_refused_before_it_runs(monkeypatch, capsys, tmp_path):
    (tmp_path / "boards").mkdir()
    text = BOARD.replace("run = {", 'run = { data-source = "embedded",')
    (tmp_path / "boards" / "tiny.toml").write_text(text)
    (tmp_path / "entry.toml").write_text(ENTRY.format(board="tiny", run="strategy = 'stc'"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["paper", "sweep", "entry.toml", "--boards=boards"])
    assert run_command_line(app) == 1
    error = capsys.readouterr().err
    assert error.startswith(
        "error: data-dir = '': these are not the data of board-tiny but embedded MNIST"
    )
    assert not (tmp_path / "results").exists()
