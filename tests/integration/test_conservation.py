"""The account of updates under faults holds for the strategies, and sees what would break it."""

import pytest

from strategies.compression.error_feedback import Residual
from strategies.compression.update_sum import EstimateSum
from tests.support.disturbed import compare

# More faults than in results/, since the runs are short.
SMALL = {
    "data-source": "embedded", "num-clients": 12, "fraction-train": 0.5, "evaluate-every": 15,
}  # fmt: skip
EXACT = 1e-5


def errors(strategy, **keys):
    figures = compare(15, strategy=strategy, **SMALL, **keys)["disturbed"]
    assert figures["dropped"] > 5
    assert figures["restarts"] > 0
    return figures["model"], figures["clients"]


@pytest.mark.parametrize("strategy", ["stc", "topk", "ef21"])
def test_nothing_is_lost_or_counted_twice(strategy):
    assert max(errors(strategy)) < EXACT


def test_update_that_stays_in_the_residual_is_seen(monkeypatch):
    monkeypatch.setattr(Residual, "accepted", lambda self, memory, sent: memory)
    model, clients = errors("topk")
    assert model < EXACT < clients


def test_update_that_the_server_counts_twice_is_seen(monkeypatch):
    add = EstimateSum.add

    def twice(self, node, update, weight, *, anew):
        add(self, node, update, weight, anew=anew)
        add(self, node, update, weight, anew=False)

    monkeypatch.setattr(EstimateSum, "add", twice)
    assert min(errors("ef21")) > EXACT
