"""Damaged and forged payloads: what a decoder must either decode to a valid update or reject."""

import numpy as np

from strategies.compression.float32 import Float32
from strategies.compression.hostile_bytes import check_update
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
from tests.support.compression_reference import generator, layout_of

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


def position_bits_bound(count, b, size):
    """Return the most bits of ``count`` positions, for claims that no valid update makes too."""
    b = min(b, 31)
    return min(count, size) * (b + 1) + (size >> b)
