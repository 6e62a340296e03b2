"""The time that messages take over a link, by hand."""

import pytest

from fedavg_app.links.link import Link, link_times
from fedavg_app.results.metrics import RoundMetrics


def test_a_round_is_two_round_trips_and_both_transfers():
    link = Link(up=10, down=50, latency=50)
    assert link.seconds(1_250_000, 6_250_000) == pytest.approx(0.1 + 1.0 + 1.0)
    assert link.seconds(0, 0, rounds=3) == pytest.approx(0.3)


def test_a_round_waits_for_its_largest_messages():
    link = Link(up=8, down=8, latency=0)
    history = [
        RoundMetrics(0),
        RoundMetrics(1, 2, bytes_up=3_000_000, bytes_down=2_000_000,
                     largest_up=2_000_000, largest_down=1_000_000),
        RoundMetrics(2, 2, bytes_up=3_000_000, bytes_down=2_000_000),  # of an earlier version
    ]  # fmt: skip
    assert link_times(history, link) == pytest.approx([0.0, 3.0, 5.5])
