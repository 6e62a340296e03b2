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


@pytest.fixture
def clock(monkeypatch):
    """A clock that sleeping moves, and a list of all sleeps."""

    class Clock:
        now, slept = 1000.0, []

        def sleep(self, seconds):
            self.slept.append(seconds)
            self.now += seconds

    clock = Clock()
    clock.slept = []
    monkeypatch.setattr(time, "sleep", clock.sleep)
    monkeypatch.setattr(time, "monotonic", lambda: clock.now)
    return clock


def test_supernode_in_a_run_looks_for_messages_and_replies_often(clock):
    pauses = Pauses()
    clock.now += 3600
    pauses.sleep(0.5)  # it waits for its client's reply
    pauses.sleep(3)
    assert clock.slept == [0.05, 0.3]


def test_supernode_without_a_run_looks_as_often_as_flowers(clock):
    pauses = Pauses()
    clock.now += 3600
    pauses.sleep(3)
    assert clock.slept == [3]


def test_supernode_waits_a_tenth_of_the_time_since_its_last_message(clock):
    pauses = Pauses()
    pauses.sleep(0.5)
    clock.now += 20
    pauses.sleep(3)
    assert clock.slept[-1] == pytest.approx(2.0, abs=0.01)


def test_supernode_keeps_pauses_that_it_does_not_know(clock):
    Pauses().sleep(1.25)
    assert clock.slept == [1.25]
