"""Versions, lists of updates, heads and replies: what both ends of a compressed strategy share."""

import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strategies.compression.decoded_update import DecodeError
from strategies.compression.sync_protocol import (
    Head,
    ModelUpdate,
    ReplyStatus,
    UpdateHistory,
    Version,
    decode_reply,
    decode_updates,
    encode_reply,
    missing_updates,
)
from tests.support.compression_reference import no_deadline

uint32 = st.integers(0, 2**32 - 1)
update_lists = st.lists(st.tuples(st.integers(1, 9), st.binary(max_size=20)), max_size=8).map(
    lambda drawn: [
        ModelUpdate(sum(step for step, _ in drawn[: i + 1]), data)
        for i, (_, data) in enumerate(drawn)
    ]
)


def versions(base, updates):
    """Return the base and the version after each update."""
    found = [base]
    for update in updates:
        found.append(found[-1].after(update.number, update.data))
    return found


def encode(updates):
    return b"".join(update.encode() for update in updates)


@no_deadline
@given(st.binary(max_size=30), update_lists)
def test_fingerprint_is_the_crc_of_the_model_and_all_updates_since(model, updates):
    base = Version(4, 0).after(4, model)
    for number, version in enumerate(versions(base, updates)):
        data = [update.data for update in updates[:number]]
        assert version.fingerprint == zlib.crc32(b"".join([model, *data]))
        assert version.number == (updates[number - 1].number if number else 4)


def test_fingerprint_by_hand():
    assert Version(0, 0).after(1, b"1234").after(2, b"56789") == Version(2, 0xCBF43926)


@no_deadline
@given(st.binary(max_size=30), update_lists, st.data())
def test_missing_updates_are_those_after_the_own_version(model, updates, data):
    every = versions(Version(0, zlib.crc32(model)), updates)
    have = data.draw(st.integers(0, len(updates)))
    ahead = missing_updates(every[have], updates, every[-1])
    assert ahead == updates[have:]
    assert missing_updates(every[have], updates[have:], every[-1]) == ahead


@no_deadline
@given(st.binary(max_size=30), update_lists, uint32, st.data())
def test_updates_that_lead_to_another_version_are_rejected(model, updates, fingerprint, data):
    every = versions(Version(0, zlib.crc32(model)), updates)
    have, last = every[data.draw(st.integers(0, len(updates)))], every[-1]
    if fingerprint != last.fingerprint:
        assert missing_updates(have, updates, Version(last.number, fingerprint)) is None
    if fingerprint != have.fingerprint:  # a CRC of the same bytes tells any two starts apart
        assert missing_updates(Version(have.number, fingerprint), updates, last) is None
    assert missing_updates(have, updates, Version(last.number + 1, last.fingerprint)) is None
    ahead = [update for update in updates if update.number > have.number]
    if ahead and ahead[-1].data:
        assert missing_updates(have, updates[:-1], last) is None


def test_gaps_changes_and_future_versions_are_rejected():
    updates = [ModelUpdate(1, b"first"), ModelUpdate(2, b"second"), ModelUpdate(3, b"third")]
    every = versions(Version(0, 7), updates)
    assert missing_updates(every[0], [updates[0], updates[2]], every[3]) is None
    assert missing_updates(every[0], [ModelUpdate(1, b"First"), *updates[1:]], every[3]) is None
    assert missing_updates(every[3], updates, every[2]) is None
    assert missing_updates(every[2], [], every[2]) == []
    assert missing_updates(every[2], updates[:2], every[2]) == []
    assert missing_updates(every[2], [], every[3]) is None


@no_deadline
@given(update_lists)
def test_lists_of_updates_decode_to_what_was_encoded(updates):
    data = encode(updates)
    assert decode_updates(data) == updates
    assert len(data) == sum(map(len, updates))


def test_list_of_updates_by_hand():
    data = bytes([3, 0, 0, 0, 2, 0, 0, 0]) + b"ab" + bytes([0, 1, 0, 0, 0, 0, 0, 0])
    assert decode_updates(data) == [ModelUpdate(3, b"ab"), ModelUpdate(256, b"")]
    assert decode_updates(b"") == []


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
@given(uint32, uint32, uint32)
def test_head_decodes_to_what_was_encoded(accepted, number, fingerprint):
    head = Head(accepted, Version(number, fingerprint))
    data = head.encode()
    assert data == b"\x05" + b"".join(
        x.to_bytes(4, "little") for x in (accepted, number, fingerprint)
    )
    assert Head.decode(data) == head


@pytest.mark.parametrize("size", [0, 12, 14])
def test_head_of_another_length_is_rejected(size):
    with pytest.raises(DecodeError, match=f"the head has {size} bytes, not 13"):
        Head.decode(b"\x05" * size)


@pytest.mark.parametrize("protocol", [0, 1, 2, 255])
def test_another_protocol_is_rejected(protocol):
    with pytest.raises(DecodeError, match=f"protocol {protocol}, this end speaks 5"):
        Head.decode(bytes([protocol]) + bytes(12))
    with pytest.raises(DecodeError, match=f"protocol {protocol}, this end speaks 5"):
        decode_reply(bytes([protocol]) + bytes(5))


def test_status_numbers_are_those_of_the_protocol():
    names = ["UPDATE", "NEEDS_MODEL", "DIVERGED", "FIRST_UPDATE"]
    assert [(status.value, status.name) for status in ReplyStatus] == list(enumerate(names))


@no_deadline
@given(st.sampled_from(ReplyStatus), uint32, st.binary())
def test_reply_decodes_to_what_was_encoded(status, server_round, update):
    update = update if status == ReplyStatus.UPDATE else b""
    data = encode_reply(status, server_round, update)
    assert data == bytes([5, status]) + server_round.to_bytes(4, "little") + update
    assert decode_reply(data) == (status, server_round, update)
    assert isinstance(decode_reply(data)[0], ReplyStatus)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "the payload has 0 bytes"),
        (b"\x05\0\0\0\0", "the payload has 5 bytes, its head alone takes 6"),
        (b"\x05\x04\0\0\0\0", "unknown status 4"),
        (b"\x05\xff\0\0\0\0", "unknown status 255"),
        (b"\x05\x01\0\0\0\0ab", "2 bytes follow a status without an update"),
        (b"\x05\x02\0\0\0\0a", "1 bytes follow a status without an update"),
    ],
)
def test_invalid_reply_is_rejected(data, reason):
    with pytest.raises(DecodeError, match=reason):
        decode_reply(data)


@no_deadline
@given(update_lists, st.binary(min_size=60, max_size=60))
def test_history_keeps_the_last_updates_that_are_smaller_than_the_model(updates, model):
    history, base = UpdateHistory(0, model), Version(0, zlib.crc32(model))
    for made, update in enumerate(updates, 1):
        history.append(update.number, update.data)
        so_far = versions(base, updates[:made])
        assert (history.version, history.count) == (so_far[-1], made)
        for number, version in enumerate(so_far):
            missed = encode(updates[number:made])
            if history.reaches(version.number):
                assert history.since(version.number) == missed
                assert len(missed) < len(model)
            else:
                assert len(missed) >= len(model)


def test_history_drops_an_update_as_large_as_the_model():
    history = UpdateHistory(0, bytes(20))
    history.append(1, bytes(12))
    assert not history.reaches(0)
    assert history.reaches(1)
    assert history.version == Version(0, zlib.crc32(bytes(20))).after(1, bytes(12))
