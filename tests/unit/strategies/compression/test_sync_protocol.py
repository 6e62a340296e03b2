"""Versions, lists of updates, heads and replies: what both ends of a compressed strategy share."""

import struct
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strategies.compression.decoded_update import DecodeError
from strategies.compression.sync_protocol import (
    Head,
    ModelUpdate,
    Payload,
    ReplyStatus,
    UpdateHistory,
    Version,
    decode_updates,
)
from tests.support.compression_reference import no_deadline

uint32 = st.integers(0, 2**32 - 1)
update_lists = st.lists(st.tuples(st.integers(1, 9), st.binary(max_size=20)), max_size=8).map(
    lambda drawn: [
        ModelUpdate(sum(step for step, _ in drawn[: i + 1]), data)
        for i, (_, data) in enumerate(drawn)
    ]
)


def encode(updates):
    return b"".join(update.encode() for update in updates)


def test_fingerprint_is_the_crc_of_the_models_bytes():
    vector = np.frombuffer(b"12345678", "<f4")
    assert Version.of(3, vector) == Version(3, zlib.crc32(b"12345678"))


@no_deadline
@given(update_lists)
def test_lists_of_updates_decode_to_what_was_encoded(updates):
    data = encode(updates)
    assert decode_updates(data) == updates
    assert len(data) == sum(map(len, updates))


@no_deadline
@given(update_lists, st.data())
def test_list_cut_within_an_update_is_rejected(updates, data):
    encoded = encode(updates)
    ends = {len(encode(updates[:count])) for count in range(len(updates) + 1)}
    left = data.draw(st.integers(0, len(encoded)))
    if left in ends:
        assert encode(decode_updates(encoded[:left])) == encoded[:left]
    else:
        with pytest.raises(DecodeError, match=r"ends within an update's head|claims"):
            decode_updates(encoded[:left])


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (bytes(7), "the list of updates ends within an update's head"),
        (struct.pack("<II", 5, 2**32 - 1), "update 5 claims 4294967295 bytes, 0 are left"),
        (struct.pack("<II", 5, 3) + b"ab", "update 5 claims 3 bytes, 2 are left"),
        (encode([ModelUpdate(5, b"a"), ModelUpdate(5, b"b")]), "update 5 follows update 5"),
        (encode([ModelUpdate(5, b"a"), ModelUpdate(4, b"b")]), "update 4 follows update 5"),
    ],
)
def test_invalid_list_of_updates_is_rejected(data, reason):
    with pytest.raises(DecodeError, match=reason):
        decode_updates(data)


@no_deadline
@given(st.tuples(uint32, uint32, uint32, uint32))
def test_head_decodes_to_what_was_encoded(numbers):
    codec, accepted, number, fingerprint = numbers
    head = Head(codec, accepted, Version(number, fingerprint))
    data = head.encode()
    assert data == b"\x05" + b"".join(one.to_bytes(4, "little") for one in numbers)
    assert Head.decode(data) == head


@pytest.mark.parametrize("size", [0, 16, 18])
def test_head_of_another_length_is_rejected(size):
    with pytest.raises(DecodeError, match=f"the head has {size} bytes, not 17"):
        Head.decode(b"\x05" * size)


@pytest.mark.parametrize("protocol", [0, 4, 255])
def test_another_protocol_is_rejected(protocol):
    for decode, size in ((Head.decode, 16), (Payload.decode, 9)):
        with pytest.raises(DecodeError, match=f"protocol {protocol}, this end speaks 5"):
            decode(bytes([protocol]) + bytes(size))


def test_status_numbers_are_those_of_the_protocol():
    found = {status.name: status.value for status in ReplyStatus}
    assert found == {"UPDATE": 0, "NEEDS_MODEL": 1, "DIVERGED": 2, "FIRST_UPDATE": 3}


@no_deadline
@given(st.sampled_from(ReplyStatus), uint32, uint32, st.binary())
def test_reply_decodes_to_what_was_encoded(status, codec, server_round, update):
    update = update if status in (ReplyStatus.UPDATE, ReplyStatus.FIRST_UPDATE) else b""
    payload = Payload(status, codec, server_round, update)
    numbers = codec.to_bytes(4, "little") + server_round.to_bytes(4, "little")
    assert payload.encode() == bytes([5, status]) + numbers + update
    assert Payload.decode(payload.encode()) == payload


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "the payload has 0 bytes"),
        (b"\x05" + bytes(8), "the payload has 9 bytes, its head alone takes 10"),
        (b"\x05\x04" + bytes(8), "unknown status 4"),
        (b"\x05\x01" + bytes(8) + b"ab", "2 bytes follow a status without an update"),
        (b"\x05\x02" + bytes(8) + b"a", "1 bytes follow a status without an update"),
    ],
)
def test_invalid_reply_is_rejected(data, reason):
    with pytest.raises(DecodeError, match=reason):
        Payload.decode(data)


MODEL = np.arange(15, dtype=np.float32)  # 60 bytes


@no_deadline
@given(update_lists)
def test_history_keeps_the_last_updates_that_are_smaller_than_the_model(updates):
    history, numbers = UpdateHistory(0, MODEL), [0]
    for made, update in enumerate(updates, 1):
        history.append(update.number, update.data, MODEL + made)
        numbers.append(update.number)
        assert (history.version, history.count) == (Version.of(numbers[-1], MODEL + made), made)
        for place, number in enumerate(numbers):
            missed = encode(updates[place:made])
            if history.reaches(number):
                assert history.since(number) == missed
                assert len(missed) < MODEL.nbytes
            else:
                assert len(missed) >= MODEL.nbytes
