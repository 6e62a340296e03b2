"""Who handles how many messages, against the rule written out one message at a time."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedavg_app.engine.schedule import MOVE_SECONDS, WINDOW_SECONDS, moves, shares, window

LOADS = st.lists(st.integers(0, 30), min_size=1, max_size=8)


@given(st.integers(0, 60), LOADS)
def test_free_messages_go_to_the_least_loaded_one_by_one(free, owned):
    loads = list(owned)
    for _ in range(free):
        loads[loads.index(min(loads))] += 1
    given_out = shares(free, owned)
    assert sum(given_out) == free
    assert min(given_out) >= 0
    assert sorted(own + extra for own, extra in zip(owned, given_out, strict=True)) == sorted(loads)


def test_without_workers_nobody_gets_any():
    assert shares(3, []) == []


@given(LOADS, st.integers(0, 30))
def test_moves_even_out_what_free_messages_cannot(owned, free):
    loads = list(owned)
    for source, target in moves(owned, free, seconds=1.0):
        loads[source] -= 1
        loads[target] += 1
    even = math.ceil((sum(owned) + free) / len(owned))
    assert sum(loads) == sum(owned)
    assert max(loads) <= even
    surplus = sum(max(0, load - even) for load in owned)
    assert len(moves(owned, free, seconds=1.0)) == surplus  # and not one more


@pytest.mark.parametrize("seconds", [math.inf, 0.0, MOVE_SECONDS / 4])
def test_nothing_moves_that_is_short_or_not_known(seconds):
    assert moves([4, 0], 0, seconds) == []


@pytest.mark.parametrize(
    ("seconds", "messages"),
    [(0.0, 2), (math.inf, 2), (10.0, 2), (WINDOW_SECONDS, 2), (WINDOW_SECONDS / 8, 8)],
)
def test_a_worker_has_work_for_the_window_and_two_messages_at_least(seconds, messages):
    assert window(seconds) == messages
