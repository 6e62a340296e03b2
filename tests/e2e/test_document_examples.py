"""The examples of the documents as an installed package; the notebook."""

import os
import shutil
import sys
from pathlib import Path
from tempfile import gettempdir

import pytest

from tests.support.documents import ROOT, blocks, commands, examples
from tests.support.installed import install
from tests.support.processes import succeed
from tests.support.run_folders import only_folder, read_history, read_summary

TASK_DOCUMENT = ROOT / "docs" / "writing-a-task.md"
STRATEGY_DOCUMENT = ROOT / "docs" / "writing-a-strategy.md"
OTHERS = [
    ROOT / "docs" / name
    for name in ("personal-models.md", "task-reference.md", "writing-a-compressor.md")
]
MODULES = {
    "digits_task", "ditto", "fedavgm", "fedrep", "float16_fedavg", "my_task", "qfedavg",
    "quantise8", "worst_first",
}  # fmt: skip

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """Return the folder with the documents' files, as readers save them."""
    folder = tmp_path_factory.mktemp("package")
    for document in (TASK_DOCUMENT, STRATEGY_DOCUMENT, *OTHERS):
        for name, content in examples(document).items():
            (folder / name).write_text(content)
    return folder


@pytest.fixture(scope="module")
def installed(package, tmp_path_factory):
    """Return a folder for PYTHONPATH, outside the repository, with that package installed."""
    target = install(package, tmp_path_factory.mktemp("installed"))
    assert {path.stem for path in target.glob("*.py")} >= MODULES
    assert not target.is_relative_to(ROOT)
    return target


def read_run(runs):
    folder = only_folder(runs)
    return read_history(folder), read_summary(folder)


def test_task_reaches_its_target_and_strategy_runs_by_its_path(installed, tmp_path):
    shown = commands(TASK_DOCUMENT.read_text())
    ((_, *words),) = (words for words in shown if "digits_task:TASK" in words)
    words += ["--strategy", "float16_fedavg:Float16FedAvg", "--num-workers", "1"]
    succeed(
        [sys.executable, *words, "--run-dir", str(tmp_path)],
        cwd=ROOT, env=os.environ | {"PYTHONPATH": str(installed)},
    )  # fmt: skip
    history, summary = read_run(tmp_path)
    assert summary["target-accuracy"] == 0.95
    assert summary["rounds-to-target"] == pytest.approx(10, abs=4)  # "after about 10 rounds"
    assert history[0]["accuracy"] < 0.3
    for record in history[1:]:
        assert not record["rejected"]
        assert 0.45 < record["bytes_up"] / record["bytes_down"] < 0.55


def test_python_of_the_readme_runs_as_it_is_written(tmp_path):
    text = (ROOT / "README.md").read_text()
    (script,) = (content for language, content in blocks(text) if language == "python")
    (tmp_path / "first.py").write_text(script)
    printed = succeed([sys.executable, "first.py"], cwd=tmp_path).stdout.splitlines()[-1]
    accuracy, bytes_up = printed.split()
    assert float(accuracy) > 0.5
    assert int(bytes_up) > 50 * 10 * 500


@pytest.mark.long
def test_installed_program_finds_a_strategy_in_the_working_directory(tmp_path):
    guide = examples(STRATEGY_DOCUMENT)
    (tmp_path / "fedavgm.py").write_text(guide["fedavgm.py"])
    command = [
        str(Path(sys.executable).parent / "fedavg"), "run", "--strategy", "fedavgm:FedAvgM",
        "--task", "mnist-logistic", "--data-source", "embedded", "--num-server-rounds", "2",
    ]  # fmt: skip
    succeed(command, cwd=tmp_path)
    history, summary = read_run(tmp_path / "runs")
    assert (len(history), summary["rejected-replies"]) == (3, 0)


def outputs(notebook):
    """Return the text that the cells printed."""
    found = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    return "".join(output.get("text", "") for output in found)


@pytest.mark.long
def test_notebook_runs_and_the_strategies_learn(tmp_path):
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(ROOT / "docs" / "first-experiment.ipynb", as_version=4)
    before = set(Path(gettempdir()).glob("first-experiment-*"))
    client = NotebookClient(notebook, timeout=300, resources={"metadata": {"path": tmp_path}})
    client.execute()
    lines = outputs(notebook).splitlines()
    best = [line.split()[-1] for line in lines if ": best accuracy" in line]
    assert len(best) == 3
    assert all(float(accuracy) > 0.7 for accuracy in best)
    assert not list(tmp_path.iterdir()), "nothing is left beside the notebook"
    (work,) = set(Path(gettempdir()).glob("first-experiment-*")) - before
    assert len(list(work.glob("runs/*/summary.json"))) == 3
    shutil.rmtree(work)
