"""Aggregation of the metrics that clients report."""

import pytest

from strategies.client_metrics import accuracy_spread
from strategies.reply_validation import ClientReport


def reports(*given):
    return [ClientReport(node, count, metrics) for node, (count, metrics) in enumerate(given)]


@pytest.mark.parametrize(
    "accuracies",
    [(1.7e308, 1.7e308), (1.7e308, -1.7e308), (0.5, 1.5), (0.5, -0.1), (0.5, None), ()],
)
def test_missing_or_impossible_accuracy_gives_no_spread(accuracies):
    given = [(1, {} if accuracy is None else {"accuracy": accuracy}) for accuracy in accuracies]
    assert dict(accuracy_spread(reports(*given))) == {}
