"""Versions, chains, heads and replies: what both ends of a compressed strategy share."""

import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strategies import synced
from strategies.compression.update import CodecError
from strategies.synced import (
    Entry,
    Head,
    Version,
    decode_chain,
    decode_reply,
    encode_reply,
    missing,
)
from tests.strategies.compression.reference import UNHURRIED

uint32 = st.integers(0, 2**32 - 1)
chains = st.lists(st.tuples(st.integers(1, 9), st.binary(max_size=20)), max_size=8).map(
    lambda drawn: [
        Entry(sum(step for step, _ in drawn[: i + 1]), update)
        for i, (_, update) in enumerate(drawn)
    ]
)


def versions(base, chain):
    """Return the base and the version after each entry."""
    found = [base]
    for entry in chain:
        found.append(found[-1].after(entry.number, entry.update))
    return found


def encode(chain):
    return b"".join(entry.encode() for entry in chain)


@UNHURRIED
@given(st.binary(max_size=30), chains)
def test_a_fingerprint_is_the_crc_of_all_bytes_since_the_model_was_whole(model, chain):
    base = Version(4, 0).after(4, model)
    for number, version in enumerate(versions(base, chain)):
        updates = [entry.update for entry in chain[:number]]
        assert version.fingerprint == zlib.crc32(b"".join([model, *updates]))
        assert version.number == (chain[number - 1].number if number else 4)


def test_a_fingerprint_by_hand():
    assert Version(0, 0).after(1, b"1234").after(2, b"56789") == Version(2, 0xCBF43926)


@UNHURRIED
@given(st.binary(max_size=30), chains, st.data())
def test_missing_are_the_entries_after_ones_own(model, chain, data):
    every = versions(Version(0, zlib.crc32(model)), chain)
    have = data.draw(st.integers(0, len(chain)))
    ahead = missing(every[have], chain, every[-1])
    assert ahead == chain[have:]
    assert missing(every[have], chain[have:], every[-1]) == ahead  # the older need not be there


@UNHURRIED
@given(st.binary(max_size=30), chains, uint32, st.data())
def test_missing_refuses_what_leads_elsewhere(model, chain, fingerprint, data):
    every = versions(Version(0, zlib.crc32(model)), chain)
    have, last = every[data.draw(st.integers(0, len(chain)))], every[-1]
    if fingerprint != last.fingerprint:
        assert missing(have, chain, Version(last.number, fingerprint)) is None
    if fingerprint != have.fingerprint:  # a CRC of the same bytes tells any two starts apart
        assert missing(Version(have.number, fingerprint), chain, last) is None
    assert missing(have, chain, Version(last.number + 1, last.fingerprint)) is None
    ahead = [entry for entry in chain if entry.number > have.number]
    if ahead and ahead[-1].update:
        assert missing(have, chain[:-1], last) is None


def test_missing_refuses_gaps_changes_and_the_future():
    chain = [Entry(1, b"first"), Entry(2, b"second"), Entry(3, b"third")]
    every = versions(Version(0, 7), chain)
    assert missing(every[0], [chain[0], chain[2]], every[3]) is None
    assert missing(every[0], [Entry(1, b"First"), *chain[1:]], every[3]) is None
    assert missing(every[3], chain, every[2]) is None
    assert missing(every[2], [], every[2]) == []
    assert missing(every[2], chain[:2], every[2]) == []
    assert missing(every[2], [], every[3]) is None


@UNHURRIED
@given(chains)
def test_chains_and_back(chain):
    data = encode(chain)
    assert decode_chain(data) == chain
    assert len(data) == sum(map(len, chain))


def test_a_chain_by_hand():
    data = bytes([3, 0, 0, 0, 2, 0, 0, 0]) + b"ab" + bytes([0, 1, 0, 0, 0, 0, 0, 0])
    assert decode_chain(data) == [Entry(3, b"ab"), Entry(256, b"")]
    assert decode_chain(b"") == []


@UNHURRIED
@given(chains, st.data())
def test_chains_cut_within_an_entry_are_refused(chain, data):
    encoded = encode(chain)
    ends = {len(encode(chain[:count])) for count in range(len(chain) + 1)}
    left = data.draw(st.integers(0, len(encoded)))
    if left in ends:
        assert encode(decode_chain(encoded[:left])) == encoded[:left]
    else:
        with pytest.raises(CodecError, match=r"ends within an entry's head|claims"):
            decode_chain(encoded[:left])


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (bytes(7), "the chain of updates ends within an entry's head"),
        (struct.pack("<II", 5, 2**32 - 1), "update 5 claims 4294967295 bytes, 0 are left"),
        (struct.pack("<II", 5, 3) + b"ab", "update 5 claims 3 bytes, 2 are left"),
        (encode([Entry(5, b"a"), Entry(5, b"b")]), "update 5 follows update 5"),
        (encode([Entry(5, b"a"), Entry(4, b"b")]), "update 4 follows update 5"),
    ],
)
def test_other_chains_are_refused(data, reason):
    with pytest.raises(CodecError, match=reason):
        decode_chain(data)


@UNHURRIED
@given(uint32, uint32, uint32)
def test_heads_and_back(accepted, number, fingerprint):
    head = Head(accepted, Version(number, fingerprint))
    data = head.encode()
    assert data == b"\x01" + b"".join(
        x.to_bytes(4, "little") for x in (accepted, number, fingerprint)
    )
    assert Head.decode(data) == head


@pytest.mark.parametrize("size", [0, 12, 14])
def test_heads_of_another_length_are_refused(size):
    with pytest.raises(CodecError, match=f"the head has {size} bytes, not 13"):
        Head.decode(b"\x01" * size)


@pytest.mark.parametrize("protocol", [0, 2, 255])
def test_another_protocol_is_refused(protocol):
    with pytest.raises(CodecError, match=f"protocol {protocol}, this end speaks 1"):
        Head.decode(bytes([protocol]) + bytes(12))
    with pytest.raises(CodecError, match=f"protocol {protocol}, this end speaks 1"):
        decode_reply(bytes([protocol]) + bytes(5))


@UNHURRIED
@given(st.sampled_from([synced.HAS_UPDATE, synced.NEEDS_MODEL]), uint32, st.binary())
def test_replies_and_back(status, version, update):
    data = encode_reply(status, version, update)
    assert data == bytes([1, status]) + version.to_bytes(4, "little") + update
    assert decode_reply(data) == (status, version, update)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "the payload has 0 bytes"),
        (b"\x01\0\0\0\0", "the payload has 5 bytes, its head alone takes 6"),
        (b"\x01\x02\0\0\0\0", "unknown status 2"),
    ],
)
def test_other_replies_are_refused(data, reason):
    with pytest.raises(CodecError, match=reason):
        decode_reply(data)
