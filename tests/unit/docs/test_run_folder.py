"""docs/run-folder.md names every field of the history and the summary, in their order."""

import re
from dataclasses import fields, replace

from fedavg_app.callbacks.run_directory import summarize
from fedavg_app.errors import DivergedError
from fedavg_app.results.metrics import RoundMetrics, TrainingResult
from tests.support.documents import ROOT, SPAN
from tests.support.training_runs import history, training_run

PAGE = (ROOT / "docs" / "run-folder.md").read_text(encoding="utf-8")


def fields_in(section):
    """Return the names in the first column of a section's table."""
    text = re.search(rf"^## {re.escape(section)}\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S)[1]
    rows = [line.split(" | ")[0] for line in text.splitlines() if line.startswith("| `")]
    return [name for row in rows for name in SPAN.findall(row)]


def test_page_has_the_fields_of_the_history():
    assert fields_in("history.jsonl") == [field.name for field in fields(RoundMetrics)]


def test_page_has_the_fields_of_the_summary():
    privacy = {"epsilon": 1.0, "epsilon-replace-one": 2.0, "delta": 0.1}
    counted = {"virtual_seconds": {"round": 1.0}, "privacy": privacy}
    rounds = [replace(one, **counted) for one in history([0.1, 0.5])]
    result = TrainingResult(rounds, error=DivergedError("all NaN"))
    found = summarize(replace(training_run(), own_data={0: ("a8", 70)}), result, 1.0)
    assert sorted(fields_in("summary.json")) == sorted(found)
