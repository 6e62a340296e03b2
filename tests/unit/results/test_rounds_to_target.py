import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fedavg_app.results.metrics import RoundMetrics
from fedavg_app.results.rounds_to_target import accuracy_curve, rounds_to_target


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
    found = rounds_to_target(curve, target)
    assert found == (None if expected is None else pytest.approx(expected))


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30), st.floats(0.01, 1))
@example([0.001, 0.25], 0.25)  # in floats 5 * 0.249 / 0.249 is more than 5
def test_rounds_to_target_lies_in_the_interval_of_the_first_crossing(accuracies, target):
    curve = [(5 * index, accuracy) for index, accuracy in enumerate(accuracies)]
    found = rounds_to_target(curve, target)
    first = next((i for i, accuracy in enumerate(accuracies) if accuracy >= target), None)
    if first is None:
        assert found is None
    else:
        assert 5 * max(first - 1, 0) <= found <= 5 * first


def test_accuracy_curve_leaves_out_rounds_that_were_not_tested():
    history = [RoundMetrics(0, accuracy=0.1), RoundMetrics(1), RoundMetrics(2, accuracy=0.0)]
    assert accuracy_curve(history) == [(0, 0.1), (2, 0.0)]
