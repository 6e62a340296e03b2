"""Metrics as they are written and read, and the rounds to a target."""

import json

import pytest

from fedavg_app.results.history import RoundMetrics
from tasks.objective import Objective


def test_metrics_are_strict_json_even_when_a_loss_is_not_finite():
    nan = float("nan")
    metrics = RoundMetrics(
        1, test_loss=float("inf"), train_loss=nan, rejected={7: "NaN"}, client_metrics={"a": nan}
    )
    text = json.dumps(metrics.as_json(), allow_nan=False)
    assert json.loads(text)["test_loss"] is None
    assert json.loads(text)["rejected"] == {"7": "NaN"}
    assert json.loads(text)["client_metrics"] == {"a": None}


@pytest.mark.parametrize(
    ("curve", "target", "expected"),
    [
        # Half-way between 0.8 in round 10 and 1.0 in round 20.
        ([(0, 0.1), (10, 0.8), (20, 1.0)], 0.9, 15.0),
        # Exactly met at an evaluation.
        ([(0, 0.1), (10, 0.9), (20, 1.0)], 0.9, 10.0),
        # The dip to 0.5 does not count: the line starts from the best so far, 0.8.
        ([(10, 0.8), (20, 0.5), (30, 1.0)], 0.9, 25.0),
        # A later fall does not undo the crossing.
        ([(0, 0.0), (4, 1.0), (8, 0.2)], 0.25, 1.0),
        # Above the target from the start.
        ([(0, 0.95)], 0.9, 0.0),
        ([(0, 0.1), (10, 0.89)], 0.9, None),
        ([], 0.9, None),
    ],
)
def test_rounds_to_target_by_hand(curve, target, expected):
    found = Objective().rounds_to_target(curve, target)
    assert found == (None if expected is None else pytest.approx(expected))
