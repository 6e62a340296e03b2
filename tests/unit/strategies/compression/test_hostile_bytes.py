"""Damaged and forged bytes, a few thousand for every decoder.

tests/integration/test_hostile_payloads.py does the same with a million.
"""

import struct
import time
import warnings

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from strategies.compression.float32 import Float32
from strategies.compression.hostile_bytes import cost, decode_or_reject, mutants
from strategies.compression.sign import Sign
from strategies.compression.sparse import Sparse
from strategies.compression.sync_protocol import decode_updates
from strategies.compression.ternary import Ternary
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
from tests.support.mutations import LAYOUTS, decoder_cases

PAYLOADS = 3000  # per decoder
NAMES = ["float32", "head", "reply", "sign", "sparse", "ternary", "updates"]


@pytest.mark.parametrize("name", NAMES)
def test_damaged_payload_is_rejected_or_decodes_to_a_valid_result(name):
    rng = generator(12)
    cases = [case[1:] for case in decoder_cases() if case[0] == name]
    decoded = count = 0
    with warnings.catch_warnings(), np.errstate(all="raise"):
        warnings.simplefilter("error")
        for decode, check, payloads, fields in cases:
            for data in payloads:
                assert decode_or_reject(decode, check, data), "a payload that is not damaged"
            for data in mutants(rng, payloads, PAYLOADS // len(cases), fields):
                count += 1
                try:
                    decoded += decode_or_reject(decode, check, data)
                except Exception as error:
                    pytest.fail(f"{error!r} from {data.hex()}")
    assert 0.01 < decoded / count < 0.9, "neither all damaged beyond use nor all valid"


def test_every_decoder_has_a_case():
    assert sorted({case[0] for case in decoder_cases()}) == NAMES


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


@pytest.mark.parametrize("form", DECODERS)
def test_damaged_payload_that_decodes_means_what_the_bitwise_reference_reads(form):
    rng, read = generator(13), DECODERS[form]
    cases = [case for case in decoder_cases() if case[0] == form]
    for layout, (_, decode, _, payloads, fields) in zip(LAYOUTS, cases, strict=True):

        def check(update, data, blocks=layout.sizes):
            assert update.to_dense().tolist() == read(data, blocks)

        found = [
            decode_or_reject(decode, check, data) for data in mutants(rng, payloads, 250, fields)
        ]
        assert any(found)


def test_claimed_length_without_its_bytes_allocates_nothing():
    _, peak, rejected = cost(decode_updates, struct.pack("<II", 1, 2**32 - 1))
    assert rejected
    assert peak < 100_000


def test_list_of_many_empty_updates_costs_what_its_bytes_do():
    data = b"".join(struct.pack("<II", number, 0) for number in range(1, 50_001))
    _, peak, rejected = cost(decode_updates, data)
    assert rejected is None
    assert peak < 20 * len(data)
    seconds = time.process_time()
    decode_updates(data)
    assert time.process_time() - seconds < 1  # about 2 microseconds an update
