"""Damaged and forged bytes, a few thousand for every decoder."""

import struct

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from strategies.compression.decoded_update import DecodeError
from strategies.compression.floats import Float32
from strategies.compression.sign import Sign
from strategies.compression.sparse import Sparse
from strategies.compression.sync_protocol import (
    Head,
    Payload,
    ReplyStatus,
    Version,
    decode_updates,
    encode_update,
)
from strategies.compression.ternary import Ternary
from strategies.compression.testing import cost, mutants
from tests.support.compression_reference import (
    DECODERS,
    SMALLEST,
    SPARSITY,
    float32,
    generator,
    layout_of,
    no_deadline,
    vectors_in_blocks,
)


def lists_of_updates():
    """Return lists of none, one, two and five updates."""
    rng = generator(11)
    chains = [b""]
    for length in (1, 2, 5):
        chain = [encode_update(3 * i + 1, rng.bytes(10 * i)) for i in range(length)]
        chains.append(b"".join(chain))
    return chains


def check_updates(updates, data):
    assert b"".join(encode_update(*update) for update in updates) == data
    numbers = [number for number, _ in updates]
    assert numbers == sorted(set(numbers))


def check_head(head, data):
    assert head.encode() == data


REPLIES = [Payload(status, 9, 7 * status).encode() for status in ReplyStatus]
REPLIES += [Payload(ReplyStatus.UPDATE, 9, 3, b"an update").encode()]
HEADS = [
    Head(9, 3, True, Version(4, 12345)).encode(),
    Head(9, 0, False, Version(0, 2**32 - 1)).encode(),
]


@pytest.mark.parametrize(
    ("decode", "check", "valid"),
    [
        (decode_updates, check_updates, lists_of_updates()),
        (Payload.decode, check_head, REPLIES),
        (Head.decode, check_head, HEADS),
    ],
    ids=["updates", "reply", "head"],
)
def test_damaged_payload_is_rejected_or_decodes_to_a_valid_result(decode, check, valid):
    """Those of compressors are in their contract."""
    decoded = 0
    for data in valid:
        check(decode(data), data)
    for data in mutants(valid, 3000):
        try:
            found = decode(data)
        except DecodeError:
            continue
        check(found, data)
        decoded += 1
    assert 0.01 < decoded / 3000 < 0.9, "neither all damaged beyond use nor all valid"


@no_deadline
@given(vectors_in_blocks(), SPARSITY, st.sampled_from(sorted(DECODERS)))
@example((np.ones(300, np.float32), (300,)), 1.0, "ternary")
@example((np.zeros(300, np.float32), (100, 200)), 1.0, "sign")
@example((float32([-0.0, SMALLEST]), (2,)), 1.0, "float32")
def test_bytes_are_what_the_bitwise_reference_reads(drawn, sparsity, form):
    values, blocks = drawn
    forms = {"float32": Float32(), "sign": Sign(0.5)}
    forms |= {"sparse": Sparse(sparsity), "ternary": Ternary(sparsity)}
    data = forms[form].encode(values, layout_of(*blocks), generator())
    found = forms[form].decode(data, layout_of(*blocks)).to_dense()
    assert found.tobytes() == float32(DECODERS[form](data, blocks)).tobytes()
    if form == "float32":
        assert found.tobytes() == values.tobytes()


def test_claimed_length_without_its_bytes_allocates_nothing():
    _, peak, rejected = cost(decode_updates, struct.pack("<II", 1, 2**32 - 1))
    assert rejected
    assert peak < 100_000
