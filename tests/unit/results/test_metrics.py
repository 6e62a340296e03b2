import json

import pytest

from fedavg_app.results.metrics import RoundMetrics, read_history


def test_metrics_are_strict_json_even_when_a_loss_is_not_finite():
    metrics = RoundMetrics(1, test_loss=float("inf"), train_loss=float("nan"), rejected={7: "NaN"})
    text = json.dumps(metrics.as_json(), allow_nan=False)
    assert json.loads(text)["test_loss"] is None
    assert json.loads(text)["rejected"] == {"7": "NaN"}


def write_history(path, rounds):
    history = [
        RoundMetrics(number, accuracy=number / 10, rejected={5: "NaN"}).with_totals(None)
        for number in rounds
    ]
    path.write_text("".join(json.dumps(metrics.as_json()) + "\n" for metrics in history))
    return history


def test_line_that_was_cut_off_after_the_last_round_to_read_is_ignored(tmp_path):
    path = tmp_path / "history.jsonl"
    history = write_history(path, range(3))
    with path.open("a") as file:
        file.write('{"round": 3, "accu')
    assert read_history(path, 2) == history
    with pytest.raises(ValueError, match="Unterminated string"):
        read_history(path)


def test_history_that_ends_early_is_refused(tmp_path):
    path = tmp_path / "history.jsonl"
    write_history(path, range(4))
    with pytest.raises(ValueError, match=r"history.jsonl ends before round 4"):
        read_history(path, 4)
