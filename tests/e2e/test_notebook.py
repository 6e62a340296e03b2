"""The notebook runs as it stands."""

import nbformat
import pytest
from nbclient import NotebookClient

from tests.support.documents import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.long]


def outputs(notebook):
    """Return the text that the cells printed."""
    found = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    return "".join(output.get("text", "") for output in found)


def test_notebook_runs_and_the_strategies_learn(tmp_path):
    notebook = nbformat.read(ROOT / "docs" / "first-experiment.ipynb", as_version=4)
    client = NotebookClient(notebook, timeout=300, resources={"metadata": {"path": tmp_path}})
    client.execute()
    lines = outputs(notebook).splitlines()
    best = [line.split()[-1] for line in lines if ": best accuracy" in line]
    assert len(best) == 3
    assert all(float(accuracy) > 0.7 for accuracy in best)
    assert len(list((tmp_path / "runs" / "notebook").iterdir())) == 3
