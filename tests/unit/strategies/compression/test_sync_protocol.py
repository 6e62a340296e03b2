"""Versions, lists of updates, heads and replies: what both ends of a compressed strategy share."""

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strategies.compression.decoded_update import DecodeError
from strategies.compression.sync_protocol import (
    MissedUpdates,
    Version,
    decode_updates,
    encode_update,
)
from tests.support.compression_reference import no_deadline

update_lists = st.lists(st.tuples(st.integers(1, 9), st.binary(max_size=20)), max_size=8).map(
    lambda drawn: [
        (sum(step for step, _ in drawn[: i + 1]), data) for i, (_, data) in enumerate(drawn)
    ]
)


def encode(updates):
    return b"".join(encode_update(*update) for update in updates)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (bytes(7), "the list of updates ends within an update's head"),
        (struct.pack("<II", 5, 2**32 - 1), "update 5 claims 4294967295 bytes, 0 are left"),
        (struct.pack("<II", 5, 3) + b"ab", "update 5 claims 3 bytes, 2 are left"),
        (encode([(5, b"a"), (5, b"b")]), "update 5 follows update 5"),
        (encode([(5, b"a"), (4, b"b")]), "update 4 follows update 5"),
    ],
)
def test_invalid_list_of_updates_is_rejected(data, reason):
    with pytest.raises(DecodeError, match=reason):
        decode_updates(data)


MODEL = np.arange(15, dtype=np.float32)  # 60 bytes


@no_deadline
@given(update_lists)
def test_updates_are_kept_that_are_smaller_together_than_the_model(updates):
    versions = MissedUpdates()
    versions.start_from(0, MODEL)
    for made, (server_round, data) in enumerate(updates, 1):
        versions.offer(made, keep=0)
        versions.confirm({made - 1: made})  # a client for each version
        versions.append(server_round, data, MODEL + made)
        assert versions.current == Version.of(server_round, MODEL + made)
        for client in range(made):
            missed, number = encode(updates[client:made]), versions.following(client)
            assert versions.num_missed(client) == made - client
            assert (number is None) == (len(missed) >= MODEL.nbytes)
            assert number is None or versions.updates_since(number) == missed
