import json

import pytest

from fedavg_app.results.metrics import RoundMetrics, read_history


def test_metrics_are_strict_json_even_when_a_loss_is_not_finite():
    metrics = RoundMetrics(1, test_loss=float("inf"), train_loss=float("nan"), rejected={7: "NaN"})
    text = json.dumps(metrics.as_json(), allow_nan=False)
    assert json.loads(text)["test_loss"] is None
    assert json.loads(text)["rejected"] == {"7": "NaN"}


def test_history_that_lacks_a_round_is_refused(tmp_path):
    path = tmp_path / "history.jsonl"
    lines = [json.dumps(RoundMetrics(number).as_json()) for number in (0, 1, 3)]
    path.write_text("\n".join(lines))
    with pytest.raises(ValueError, match=r"history.jsonl has round 3 in place 2"):
        read_history(path, 2)
