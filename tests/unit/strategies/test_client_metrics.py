"""Aggregation of the metrics that clients report."""

import pytest

from strategies.client_metrics import accuracy_spread, mean_metrics
from strategies.reply_validation import ClientReport


def reports(*given):
    return [ClientReport(node, count, metrics) for node, (count, metrics) in enumerate(given)]


def test_mean_metrics_are_weighted_by_examples():
    mean = mean_metrics(
        reports(
            (1, {"loss": 1.0, "accuracy": 0.0, "own": 3.0}), (3, {"loss": 5.0, "accuracy": 1.0})
        )
    )
    assert dict(mean) == {"loss": 4.0, "accuracy": 0.75}


def test_accuracy_spread_by_hand():
    spread = accuracy_spread(reports((1, {"accuracy": 0.5}), (999, {"accuracy": 0.9})))
    assert set(spread) == {"accuracy-mean", "accuracy-p10"}
    assert spread["accuracy-mean"] == pytest.approx(0.7)
    assert spread["accuracy-p10"] == pytest.approx(0.54)  # a tenth of the way from 0.5 to 0.9


@pytest.mark.parametrize(
    "accuracies",
    [(1.7e308, 1.7e308), (1.7e308, -1.7e308), (0.5, 1.5), (0.5, -0.1), (0.5, None), ()],
)
def test_missing_or_impossible_accuracy_gives_no_spread(accuracies):
    given = [(1, {} if accuracy is None else {"accuracy": accuracy}) for accuracy in accuracies]
    assert dict(accuracy_spread(reports(*given))) == {}
