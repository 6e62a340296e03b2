"""`python -m paper` as a person runs it: a process, its output and its exit status."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def paper(*arguments):
    command = [sys.executable, "-m", "paper", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize(
    ("subcommand", "options"),
    [
        ("sweep", ["EXPERIMENT", "--results", "--data-dir", "--jobs", "--budget-minutes"]),
        ("report", ["--experiments", "--results", "--output", "--data-dir"]),
    ],
)
def test_help_lists_the_options(subcommand, options):
    done = paper(subcommand, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert "Usage: python -m paper" in done.stdout
    for option in options:
        assert option in done.stdout


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (
            ["sweep", "none.toml"],
            "error: experiment = 'none.toml': cannot be read (No such file or directory); "
            "give a TOML file as those in paper/experiments/",
        ),
        (
            ["report", "--experiments=/none", "--results={tmp_path}"],
            "error: experiments = '/none': has no experiments; give a folder with TOML files",
        ),
    ],
)
def test_error_is_one_line_and_exit_status_one(tmp_path, arguments, error):
    done = paper(*(argument.format(tmp_path=tmp_path) for argument in arguments))
    assert done.returncode == 1
    assert done.stderr == f"{error}\n"
