"""A user's own strategy on a board, entered by a file and a command in a new process."""

import json
import re
import sys

import pytest

from tasks.data.dataset import DataOptions
from tasks.mnist import MNIST_LOGISTIC
from tests.support.documents import ROOT
from tests.support.processes import Processes, succeed

BOARD = """
title = "Tiny"
data = "{}"
targets = [0.3, 0.5]
run = {{ task = "mnist-logistic", data-source = "embedded", num-clients = 10 }}
defaults = {{ local-steps = 2, num-server-rounds = 6, learning-rate = 0.01 }}
"""
ENTRY = """
board = "tiny"

[[rows]]
name = "long steps"
run = { strategy = "my:Longer", strategy-args = "factor = 3", learning-rate = 0.02, seed = [1, 2] }
"""
STRATEGY = '''
from strategies.fedavg import FedAvg


class Longer(FedAvg):
    """Longer: FedAvg with steps that are longer by a factor."""

    def __init__(self, factor: float = 2.0, **others) -> None:
        super().__init__(**others)
        self.factor = factor

    def step(self, now, aggregate):
        w = now.model.vector
        return w + self.factor * (aggregate.mean - w)
'''


@pytest.mark.slow
def test_own_strategy_is_entered_and_stands_on_the_page(tmp_path):
    (tmp_path / "my.py").write_text(STRATEGY)
    (tmp_path / "boards").mkdir()
    fingerprint = MNIST_LOGISTIC.dataset(DataOptions("embedded")).fingerprint
    (tmp_path / "boards" / "tiny.toml").write_text(BOARD.format(fingerprint))

    with Processes() as processes:
        environment = {**processes.environment, "PYTHONPATH": str(ROOT)}

        def paper(*words):
            command = [sys.executable, "-m", "paper", *words, "--boards", "boards"]
            return succeed(command, cwd=tmp_path, env=environment)

        (tmp_path / "mine.toml").write_text(ENTRY)
        sweep = ["sweep", "mine.toml", "--jobs", "1"]
        assert "board-tiny: 0 of 2 runs are done" in paper(*sweep).stdout
        assert "board-tiny: 2 of 2 runs are done" in paper(*sweep).stdout
        paper("board")

    files = sorted((tmp_path / "results/records/board-tiny").iterdir())
    records = [json.loads(file.read_text()) for file in files]
    assert [record["config"]["seed"] for record in records] == [1, 2]
    for record in records:
        assert record["config"]["strategy"] == "my:Longer"
        assert record["config"]["learning-rate"] == 0.02
        assert record["name"] == "long steps"
        assert re.fullmatch("[0-9a-f]{64}", record["model"])
        assert str(tmp_path) not in json.dumps(record)
    page = (tmp_path / "results/leaderboard.md").read_text().replace("&nbsp;", " ")
    assert "| 1 | **long steps**<br>n = 2, B = 10, η = 0.02, my:Longer factor = 3 | 2 |" in page
    assert " ".join(record["model"][:8] for record in records).replace(" ", "; ") in page
