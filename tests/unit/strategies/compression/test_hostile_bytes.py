"""Damaged and forged bytes, a few thousand for every decoder."""

import struct
import time
import warnings

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from strategies.compression.float32 import Float32
from strategies.compression.hostile_bytes import check_update, cost, decode_or_reject, mutants
from strategies.compression.sign import Sign
from strategies.compression.sparse import Sparse
from strategies.compression.sync_protocol import (
    Head,
    ModelUpdate,
    Payload,
    ReplyStatus,
    Version,
    decode_updates,
)
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

PAYLOADS = 3000  # per decoder
NAMES = ["float32", "head", "reply", "sign", "sparse", "ternary", "updates"]


LAYOUTS = [layout_of(1), layout_of(4, 0, 9, 3), layout_of(64), layout_of(90, 10, 40, 1)]
# By form, compressors that accept updates with any number of entries, and the offsets and formats
# of the integers in their bytes.
ANY_SPARSITY = {
    "float32": (Float32(), []),
    "sign": (Sign(0.5), [(4, "B"), (5, "I")]),
    "sparse": (Sparse(1.0), [(0, "B"), (1, "I")]),
    "ternary": (Ternary(1.0), [(0, "B"), (1, "I")]),
}


def vector(rng, size):
    """Return a vector with ties and zeros, or one without."""
    if rng.random() < 0.5:
        return rng.integers(-2, 3, size).astype(np.float32)
    return rng.standard_normal(size, dtype=np.float32)


def payloads_by_form(rng, layout):
    """Return valid payloads of each form for a vector of this layout."""
    size = layout.size
    made = {"ternary": [], "sparse": [], "sign": [], "float32": []}
    for sparsity in (0.01, 0.1, 0.5, 1.0):
        for form, kind in (("ternary", Ternary), ("sparse", Sparse)):
            made[form].append(kind(sparsity).encode(vector(rng, size), layout, rng))
        made["float32"].append(vector(rng, size).tobytes())
    for zeros in (0, 0.05, 0.5, 1):
        signs = rng.choice([-1, 1], size) * (rng.random(size) >= zeros)
        made["sign"].append(Sign(0.5).encode(signs.astype(np.float32), layout, rng))
    return made


def decoder_cases(seed=11):
    """Yield (decoder's name, decoder, check of what it returned, valid payloads, fields)."""
    rng = generator(seed)
    all_payloads = []
    for layout in LAYOUTS:
        for form, payloads in payloads_by_form(rng, layout).items():
            compressor, fields = ANY_SPARSITY[form]
            all_payloads += payloads
            yield form, _decoder(compressor, layout), _check(form, layout), payloads, fields
    chains, replies = [b""], [Payload(ReplyStatus.NEEDS_MODEL, 9, 0).encode()]
    replies.append(Payload(ReplyStatus.DIVERGED, 9, 7).encode())
    for length in (1, 2, 5):
        chosen = [all_payloads[int(i)] for i in rng.integers(len(all_payloads), size=length)]
        chain = [ModelUpdate(3 * i + 1, data).encode() for i, data in enumerate(chosen)]
        chains.append(b"".join(chain))
        replies.append(Payload(ReplyStatus.UPDATE, 9, length, chosen[0]).encode())
    yield "updates", decode_updates, _check_updates, chains, [(0, "I"), (4, "I")]
    reply_fields = [(0, "B"), (1, "B"), (2, "I"), (6, "I")]
    yield "reply", Payload.decode, _check_head, replies, reply_fields
    heads = [Head(9, 3, Version(4, 12345)).encode(), Head(9, 0, Version(0, 2**32 - 1)).encode()]
    head_fields = [(0, "B"), (1, "I"), (5, "I"), (9, "I"), (13, "I")]
    yield "head", Head.decode, _check_head, heads, head_fields


def _decoder(compressor, layout):
    return lambda data: compressor.decode(data, layout)


def _check(form, layout):
    def check(update, data):
        check_update(update, layout.size)
        values = update.to_dense()
        # Encoded again it is the same update. The step of a sign update is that of its bytes.
        step = float(update.max_abs()) or 1.0
        compressor = Sign(step) if form == "sign" else ANY_SPARSITY[form][0]
        again = compressor.decode(compressor.encode(values, layout, generator()), layout)
        assert again.to_dense().tobytes() == values.tobytes()

    return check


def _check_updates(updates, data):
    assert b"".join(update.encode() for update in updates) == data
    numbers = [update.number for update in updates]
    assert numbers == sorted(set(numbers))


def _check_head(head, data):
    assert head.encode() == data


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
