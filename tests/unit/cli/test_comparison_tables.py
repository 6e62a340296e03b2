"""The tables that `compare` writes: CSV and LaTeX."""

import csv
import re
import shutil
import subprocess
from random import Random

import pytest

from fedavg_app.config import RunConfig
from tests.support import fake_runs
from tests.support.recomputed_table import check_csv, check_latex

METHODS = {
    "FedAvg": ("fedavg", ""), "STC, p = 1/25": ("stc", "sparsity-up = 0.04"),
    "QSGD_4 & co": ("qsgd", "bits = 4"), "top-k": ("topk", ""),
}  # fmt: skip
LATEX = shutil.which("pdflatex")


def history(random, rate):
    """Return the lines of a run that was tested every other round."""
    lines, total = [], {"bytes_up": 0, "bytes_down": 0}
    for number in range(random.randint(11, 14)):
        own = {
            "bytes_up": random.randint(10**6, 10**7) // rate,
            "bytes_down": random.randint(10**6, 10**7),
        }
        own = own if number else dict.fromkeys(own, 0)
        total = {key: total[key] + own[key] for key in own}
        accuracy = min(0.12 + 0.08 * number + random.uniform(-0.1, 0.1), 1)
        lines.append(
            fake_runs.line(
                number, None if number % 2 else accuracy, participants=10 if number else 0,
                largest_up=own["bytes_up"] // 9, largest_down=own["bytes_down"] // 9, total=total,
                seconds=random.uniform(0.1, 3), rejected={"7": "late"} if number % 5 == 1 else {},
                **own,
            )
        )  # fmt: skip
    return lines


@pytest.fixture
def runs(tmp_path):
    """Return the folders of four methods and three seeds, by the methods' names."""
    random, found = Random(5), {}
    for place, (name, (strategy, arguments)) in enumerate(METHODS.items()):
        config = {"task": "mnist-logistic", "strategy": strategy, "strategy_args": arguments}
        found[name] = [
            fake_runs.write(
                tmp_path / f"{strategy}-{seed}", RunConfig(**config, seed=seed),
                history(random, 10**place),
            )
            for seed in (1, 2, 3)
        ]  # fmt: skip
    return found


@pytest.fixture
def write(runs, tmp_path, command_line):
    """Return a function that compares the runs and returns the path of the table."""

    def run(*words, kind="latex"):
        folders = [folder for own in runs.values() for folder in own]
        labels = [word for name, own in runs.items() for _ in own for word in ("--label", name)]
        path = tmp_path / f"table.{kind}"
        status, _, error = command_line("compare", *folders, *labels, f"--{kind}", path, *words)
        assert status == 0, error
        return path

    return run


@pytest.mark.parametrize("target", [0.2, 0.5, 0.97])
def test_every_number_is_that_of_the_history(write, runs, target):
    """Not every run reaches 0.97."""
    words = ("--link", "4g", "--target", target)
    check_csv(write(*words, kind="csv"), runs, target)
    check_latex(write(*words), runs, target)
    check_latex(write(*words, "--siunitx"), runs, target)
    assert ("{reached}" in write(*words).read_text()) == (target == 0.97)


@pytest.mark.parametrize("spread", ["std", "runs"])
def test_csv_has_a_row_for_every_run_and_says_which_row_is_which(write, spread):
    with write("--spread", spread, kind="csv").open() as file:
        rows = [(row["run"], row["row"], row["seed"]) for row in csv.DictReader(file)]
    own = [("run", "1"), ("run", "2"), ("run", "3")]
    own += [(name, "") for name in ("mean", "std", "min", "max", "count")]
    assert rows == [(name, *row) for name in METHODS for row in own]


def test_latex_shows_the_chosen_spread_next_to_the_mean(write):
    assert re.search(r"& \$0\.\d{4} \\pm 0\.\d{4}\$ &", write().read_text())
    assert re.search(
        r"& \{0\.\d{4} \[0\.\d{4}, 0\.\d{4}\]\} &", write("--spread=range").read_text()
    )
    body = write("--spread=runs").read_text().split("midrule")[1]
    assert [line.split(" & ")[0].strip() for line in body.splitlines()[1:4]] == [
        "FedAvg, seed 1", "FedAvg, seed 2", "FedAvg, seed 3",
    ]  # fmt: skip
    assert "pm" not in body


@pytest.mark.skipif(LATEX is None, reason="there is no pdflatex")
@pytest.mark.parametrize(
    "words", [(), ("--siunitx",), ("--siunitx", "--spread=range"), ("--siunitx", "--target=0.97")]
)
def test_latex_compiles_with_the_packages_that_it_names(write, tmp_path, words):
    table = write(*words)
    packages = table.read_text().partition("\n")[0].removeprefix("% ").replace(",", "")
    (tmp_path / "paper.tex").write_text(
        rf"\documentclass{{article}}{packages}\begin{{document}}\input{{{table}}}\end{{document}}"
    )
    command = [LATEX, "-interaction=nonstopmode", "-halt-on-error", "paper.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
