"""The tables of docs/choosing-a-compressor.md against the records that they are made from."""

import math

import pytest

from paper.experiments import load
from paper.records import by_run, read_all
from paper.tables import fill
from tests.support.documents import ROOT

PAGE = (ROOT / "docs" / "choosing-a-compressor.md").read_text()
MEASURES = ("upload-to-target", "traffic-to-target")


@pytest.fixture(scope="module")
def stored():
    return read_all(ROOT / "results" / "records")


@pytest.mark.parametrize(
    ("heading", "name"),
    [("Logistic regression to 90 %", "bytes-logistic"), ("MNIST-CNN to 97 %", "bytes-cnn")],
)
def test_numbers_are_those_of_the_records(heading, name, stored):
    experiment = load(ROOT / "paper" / "experiments" / f"{name}.toml")
    records = by_run(stored, experiment.data)
    of = [experiment.model_copy(update={"measure": measure}) for measure in MEASURES]
    measured = [fill(each, records) for each in of]
    expected = {
        up[0].cell.row.name: [value(cell) for pair in zip(up, both, strict=True) for cell in pair]
        for up, both in zip(*measured, strict=True)
    }
    shown = dict(rows(heading))
    several = {row[0].cell.row.name for row in measured[0] if num_seeds(row[0].cell) == 3}
    assert list(shown) == [f"{name} *" if name in several else name for name in expected]
    shown = {name.removesuffix(" *"): values for name, values in shown.items()}
    for row, values in expected.items():
        assert shown[row] == pytest.approx(values, rel=0.006, nan_ok=True), row


def num_seeds(cell):
    return len({run.config.seed for run in cell.runs})


def value(result):
    return math.nan if result.value is None else result.value


def rows(heading):
    """Yield the table's rows: the method and its numbers, NaN where the target was not reached."""
    section = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    for line in lines[2:]:
        method, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        yield method, [math.nan if cell == "-" else float(cell.replace(",", "")) for cell in cells]
