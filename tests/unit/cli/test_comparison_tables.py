"""The tables that `compare` writes: CSV and LaTeX."""

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
                seconds=random.uniform(0.1, 3), exchanges=1 + number % 3,
                rejected={"7": "late"} if number % 5 == 1 else {},
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
    check_csv(table := write(*words, kind="csv"), runs, target)
    check_latex(write(*words), table, runs)
    check_latex(write(*words, "--siunitx"), table, runs)
    assert ("& reached &" in write(*words).read_text()) == (target == 0.97)


def test_latex_shows_the_chosen_spread_next_to_the_mean(write):
    assert re.search(r"& 0\.\d{4} \$\\pm\$ 0\.\d{4} &", write().read_text())
    assert re.search(r"& 0\.\d{4} \[0\.\d{4}, 0\.\d{4}\] &", write("--spread=range").read_text())
    body = write("--spread=runs").read_text().split("midrule")[1]
    assert [line.split(" & ")[0].strip() for line in body.splitlines()[1:4]] == [
        "FedAvg, seed 1", "FedAvg, seed 2", "FedAvg, seed 3",
    ]  # fmt: skip
    assert "pm" not in body


@pytest.mark.parametrize(("words", "bold"), [((), r"\textbf{"), (("--siunitx",), r"\bfseries ")])
def test_latex_has_the_best_of_a_column_in_bold_and_math_in_names(
    runs, tmp_path, command_line, words, bold
):
    methods = {"$p = 1/25$": runs["FedAvg"], "50 % & more": runs["top-k"]}
    folders = [folder for own in methods.values() for folder in own]
    labels = [word for name, own in methods.items() for _ in own for word in ("--label", name)]
    path = tmp_path / "table.tex"
    assert command_line("compare", *folders, *labels, "--latex", path, *words)[0] == 0
    rows = [line.split(" & ") for line in path.read_text().split("midrule\n")[1].splitlines()[:2]]
    assert [row[0] for row in rows] == ["$p = 1/25$", r"50 \% \& more"]
    assert [[cell.startswith(bold) for cell in row[2:]] for row in rows] == [
        [True, True, *[False] * 4], [False] * 6,
    ]  # fmt: skip


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
