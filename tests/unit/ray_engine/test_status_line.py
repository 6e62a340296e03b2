import io

import pytest
from rich.console import Console

from fedavg_app.ray_engine import status_line
from fedavg_app.ray_engine.status_line import StatusLine


@pytest.mark.parametrize(
    ("seconds", "terminal", "shown"),
    [(0.0, False, ["b", "c"]), (3600.0, False, []), (3600.0, True, [])],
)
def test_slow_preparation_is_shown_step_by_step(monkeypatch, seconds, terminal, shown):
    monkeypatch.setattr(status_line, "SILENT_SECONDS", seconds)
    file = io.StringIO()
    line = StatusLine(Console(file=file, force_terminal=terminal))
    line("a")
    line("b")
    with line:
        if not seconds:
            line._timer.join()
        line("c")
    assert file.getvalue().split() == shown


def test_terminal_shows_one_line_and_erases_it(monkeypatch):
    monkeypatch.setattr(status_line, "SILENT_SECONDS", 0.0)
    file = io.StringIO()
    with StatusLine(Console(file=file, force_terminal=True, width=80)) as line:
        line("loading")
        line._timer.join()
        line("splitting")
        line._live.refresh()
    written = file.getvalue()
    assert written.count("\n") <= 1
    assert "splitting" in written
    assert written.endswith("\x1b[2K")  # the line is erased
