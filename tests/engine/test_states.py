"""Clients' states within a memory limit."""

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from hypothesis import given, settings
from hypothesis import strategies as st

from fedavg_app.engine.states import ClientStates, state_bytes

SIZE = state_bytes(RecordDict({"r": ArrayRecord({"a": Array(np.zeros(1000, np.uint8))})}))


def state(value):
    array = np.full(1000, value % 256, np.uint8)
    return RecordDict(
        {"r": ArrayRecord({"a": Array(array)}), "c": ConfigRecord({"value": value, "b": b"x"})}
    )


def test_a_client_that_has_none_gets_an_empty_one_which_costs_nothing(tmp_path):
    states = ClientStates(0, tmp_path)
    assert not states.take(3)
    states.put(3, RecordDict())
    assert list(tmp_path.iterdir()) == []


def test_those_used_last_stay_in_memory_and_the_others_go_to_disk(tmp_path):
    states = ClientStates(2 * SIZE, tmp_path)
    for client in range(5):
        states.put(client, state(client))
    assert len(list(tmp_path.iterdir())) == 3
    assert states.take(0) == state(0)
    assert len(list(tmp_path.iterdir())) == 2
    assert states.take(4) == state(4)
    assert len(list(tmp_path.iterdir())) == 2
    assert not states.take(0)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 1000)), max_size=40),
    st.integers(0, 6),
)
def test_like_a_dictionary_whatever_the_limit(tmp_path_factory, actions, limit):
    folder = tmp_path_factory.mktemp("states")
    states, expected = ClientStates(limit * SIZE, folder), {}
    for client, value in actions:
        assert states.take(client) == expected.pop(client, RecordDict())
        states.put(client, state(value))
        expected[client] = state(value)
        assert len(list(folder.iterdir())) == max(0, len(expected) - limit)
    assert {client: states.take(client) for client in range(6)} == {
        client: expected.get(client, RecordDict()) for client in range(6)
    }


def test_a_full_disk_is_an_error_and_loses_no_state(tmp_path):
    states = ClientStates(SIZE, tmp_path / "gone")
    states.put(0, state(0))
    with pytest.raises(OSError, match="gone"):
        states.put(1, state(1))
    assert states.take(0) == state(0)
    assert states.take(1) == state(1)
