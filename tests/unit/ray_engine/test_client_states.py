"""Clients' states within a memory limit."""

import pickle

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from hypothesis import given, settings
from hypothesis import strategies as st

from fedavg_app.ray_engine.client_states import ClientStates, state_bytes

SIZE = state_bytes(RecordDict({"r": ArrayRecord({"a": Array(np.zeros(1000, np.uint8))})}))


def state(value):
    array = np.full(1000, value % 256, np.uint8)
    return RecordDict(
        {"r": ArrayRecord({"a": Array(array)}), "c": ConfigRecord({"value": value, "b": b"x"})}
    )


def test_client_without_state_gets_an_empty_one_which_is_not_stored(tmp_path):
    states = ClientStates(0, tmp_path)
    assert not states.pop(3)
    states.put(3, RecordDict())
    assert list(tmp_path.iterdir()) == []


def test_least_recently_used_states_go_to_disk(tmp_path):
    states = ClientStates(2 * SIZE, tmp_path)
    for client in range(5):
        states.put(client, state(client))
    assert len(list(tmp_path.iterdir())) == 3
    assert states.pop(0) == state(0)
    assert len(list(tmp_path.iterdir())) == 2
    assert states.pop(4) == state(4)
    assert len(list(tmp_path.iterdir())) == 2
    assert not states.pop(0)


def test_pickled_state_is_the_same_from_memory_and_from_disk_and_stays_stored(tmp_path):
    states = ClientStates(SIZE, tmp_path)
    states.put(0, state(0))
    states.put(1, state(1))
    assert len(list(tmp_path.iterdir())) == 1  # client 0's
    for client in (0, 1):
        assert pickle.loads(states.pickled(client)) == state(client)
        assert states.pop(client) == state(client)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 1000)), max_size=40),
    st.integers(0, 6),
)
def test_states_equal_those_of_a_dictionary_whatever_the_limit(tmp_path_factory, actions, limit):
    folder = tmp_path_factory.mktemp("states")
    states, expected = ClientStates(limit * SIZE, folder), {}
    for client, value in actions:
        assert states.pop(client) == expected.pop(client, RecordDict())
        states.put(client, state(value))
        expected[client] = state(value)
        assert len(list(folder.iterdir())) == max(0, len(expected) - limit)
    assert {client: states.pop(client) for client in range(6)} == {
        client: expected.get(client, RecordDict()) for client in range(6)
    }


def test_full_disk_raises_and_loses_no_state(tmp_path):
    states = ClientStates(SIZE, tmp_path / "gone")
    states.put(0, state(0))
    with pytest.raises(OSError, match="gone"):
        states.put(1, state(1))
    assert states.pop(0) == state(0)
    assert states.pop(1) == state(1)
