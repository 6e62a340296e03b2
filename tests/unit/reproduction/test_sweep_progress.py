import io

import pytest
from rich.console import Console

from reproduction import sweep_progress
from reproduction.experiments import in_order
from reproduction.records import read_run
from reproduction.sweep_progress import SweepProgress
from tests.support.fake_runs import HISTORY, experiment, write

CONFIG = in_order(experiment().cells())[0][1].config


@pytest.fixture
def clock(monkeypatch):
    """Return the time that the progress sees, as a list of one number."""
    now = [1000.0]
    monkeypatch.setattr(sweep_progress.time, "monotonic", lambda: now[0])
    return now


def test_remaining_time_is_estimated_from_the_runs_so_far(tmp_path, clock):
    output = io.StringIO()
    record = read_run(
        write(tmp_path / "run", CONFIG, HISTORY, status="diverged", **{"rounds-to-target": 1.5})
    )
    progress = SweepProgress("made-up", 10, 4, 2, Console(file=output, width=200))
    with progress:
        clock[0] += 1800
        progress.ended("one", record, 1799.6, "done")
        clock[0] += 1800
        progress.ended("two", None, 12.3, "error: no such file")
    assert output.getvalue().splitlines() == [
        "made-up: 6 of 10 runs are done, 2 at a time",
        "7/10  one: diverged, best accuracy 0.9500, 1.5 rounds to 0.9, 1800 s  left 1:30:00",
        "8/10  two: failed: error: no such file, 12 s  left 1:00:00",
    ]
