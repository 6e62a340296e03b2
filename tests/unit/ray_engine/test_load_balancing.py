"""How many messages each worker handles, against the rule written out one message at a time."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedavg_app.ray_engine.load_balancing import (
    MOVE_SECONDS,
    WINDOW_SECONDS,
    moves,
    share_out,
    window_size,
)

LOADS = st.lists(st.integers(0, 30), min_size=1, max_size=8)


@given(st.integers(0, 60), LOADS)
def test_each_free_message_goes_to_the_least_loaded_worker(free, initial_loads):
    loads = list(initial_loads)
    for _ in range(free):
        loads[loads.index(min(loads))] += 1
    given_out = share_out(free, initial_loads)
    assert sum(given_out) == free
    assert min(given_out) >= 0
    totals = [load + extra for load, extra in zip(initial_loads, given_out, strict=True)]
    assert sorted(totals) == sorted(loads)


def test_free_messages_are_not_shared_out_without_workers():
    assert share_out(3, []) == []


@given(LOADS, st.integers(0, 30))
def test_moves_level_the_loads_with_the_fewest_possible_moves(initial_loads, free):
    loads = list(initial_loads)
    for source, target in moves(initial_loads, free, seconds=1.0):
        loads[source] -= 1
        loads[target] += 1
    even = math.ceil((sum(initial_loads) + free) / len(initial_loads))
    assert sum(loads) == sum(initial_loads)
    assert max(loads) <= even
    surplus = sum(max(0, load - even) for load in initial_loads)
    assert len(moves(initial_loads, free, seconds=1.0)) == surplus


@pytest.mark.parametrize("seconds", [math.inf, 0.0, MOVE_SECONDS / 4])
def test_no_state_moves_for_messages_of_short_or_unknown_duration(seconds):
    assert moves([4, 0], 0, seconds) == []


@pytest.mark.parametrize(
    ("seconds", "messages"),
    [(0.0, 2), (math.inf, 2), (10.0, 2), (WINDOW_SECONDS, 2), (WINDOW_SECONDS / 8, 8)],
)
def test_window_is_at_least_two_messages_and_fills_window_seconds(seconds, messages):
    assert window_size(seconds) == messages
