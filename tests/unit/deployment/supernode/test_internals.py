"""What of Flower is used for warm clients, and what happens where it is another Flower."""

import time

import flwr
import pytest

from deployment.supernode import internals
from deployment.supernode.internals import Pauses


def test_installed_flower_fits():
    assert internals.why_unfit() is None


def test_other_version_of_flower_does_not_fit(monkeypatch):
    monkeypatch.setattr(flwr, "__version__", "1.43.0")
    assert internals.why_unfit() == "this needs flwr 1.41.* or 1.42.*, and 1.43.0 is installed"


@pytest.mark.parametrize(
    ("pauses", "slept"),
    [
        ([(3600, 0.5), (0, 3)], [0.05, 0.3]),  # in a run: for its client's reply, and a message
        ([(3600, 3)], [3]),  # without a run, as often as Flower's
        ([(0, 0.5), (20, 3)], [0.05, 2]),  # a tenth of the time since its last message
        ([(0, 1.25)], [1.25]),  # one that it does not know
    ],
)
def test_supernode_in_a_run_looks_for_messages_and_replies_often(monkeypatch, pauses, slept):
    now, found = [1000.0], []
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(time, "sleep", found.append)
    pausing = Pauses()
    for idle, seconds in pauses:
        now[0] += idle
        pausing.sleep(seconds)
    assert found == pytest.approx(slept)
