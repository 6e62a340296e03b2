"""Damaged and forged payloads: what a decoder must either decode to a valid update or reject."""

import struct
import time
import tracemalloc

import numpy as np

from strategies.compression.decoded_update import DecodeError, SparseUpdate
from strategies.compression.float32 import Float32
from strategies.compression.golomb import max_bits
from strategies.compression.sign import Sign
from strategies.compression.sparse import Sparse
from strategies.compression.sync_protocol import (
    Head,
    ModelUpdate,
    ReplyStatus,
    Version,
    decode_reply,
    decode_updates,
    encode_reply,
)
from strategies.compression.ternary import Ternary
from tests.support.compression_reference import generator, layout_of

EDGE_NUMBERS = (0, 1, 2, 3, 7, 8, 15, 16, 17, 63, 64, 65, 140, 141, 142, 2**16)
EDGE_NUMBERS += (2**31 - 1, 2**31, 2**32 - 1)
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


def mutants(rng, payloads, count, fields=()):
    """Yield damaged copies of the payloads.

    Args:
        rng: What to do, and where.
        payloads: Valid ones.
        count: How many to yield.
        fields: (offset, struct format) of integers that are set to `EDGE_NUMBERS`.
    """
    formats = {"B": 2**8, "I": 2**32}
    for start in range(0, count, 1000):
        # Drawn at once: a call of the generator costs more than a mutation.
        draws = iter(rng.integers(0, 2**31, 16_000).tolist())
        noise = rng.bytes(4096)
        for _ in range(min(1000, count - start)):
            data = bytearray(payloads[next(draws) % len(payloads)])
            for _ in range(next(draws) % 3 + 1):
                kind, where, what = next(draws) % 7, next(draws), next(draws)
                at = where % max(len(data), 1)
                if kind == 0 and data:  # one bit
                    data[at] ^= 1 << what % 8
                elif kind == 1 and data:  # one byte
                    data[at] = what % 256
                elif kind == 2:  # too short
                    del data[at:]
                elif kind == 3:  # too long
                    data += noise[where % 4000 :][: what % 40]
                elif kind == 4:  # the beginning of one, the end of another
                    other = payloads[what % len(payloads)]
                    data[at:] = other[min(at, len(other)) :] if what & 1024 else other[what % 7 :]
                elif kind == 5 and data:  # random bytes in the middle
                    length = what % 9
                    data[at : at + length] = noise[where % 4000 :][:length]
                elif fields:  # an integer at an edge of its range
                    offset, form = fields[where % len(fields)]
                    if offset + struct.calcsize(form) <= len(data):
                        number = EDGE_NUMBERS[what % len(EDGE_NUMBERS)] if what & 512 else what
                        struct.pack_into("<" + form, data, offset, number % formats[form])
            yield bytes(data)


def check_update(update, size):
    """Check what holds for every decoded update of a vector of ``size`` entries."""
    values = update.to_dense()
    assert update.size == size
    assert (values.dtype, values.shape) == (np.float32, (size,))
    assert np.isfinite(values).all()
    assert update.max_abs() == np.abs(values).max(initial=0)
    if isinstance(update, SparseUpdate):
        positions = update.positions
        assert (np.diff(positions) > 0).all()
        assert not len(positions) or (positions[0] >= 0 and positions[-1] < size)
        assert np.count_nonzero(values) == len(positions) == len(update.values)


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
    chains, replies = [b""], [encode_reply(ReplyStatus.NEEDS_MODEL, 0)]
    replies.append(encode_reply(ReplyStatus.DIVERGED, 7))
    for length in (1, 2, 5):
        chosen = [all_payloads[int(i)] for i in rng.integers(len(all_payloads), size=length)]
        chain = [ModelUpdate(3 * i + 1, data).encode() for i, data in enumerate(chosen)]
        chains.append(b"".join(chain))
        replies.append(encode_reply(ReplyStatus.UPDATE, length, chosen[0]))
    yield "updates", decode_updates, _check_updates, chains, [(0, "I"), (4, "I")]
    yield "reply", decode_reply, _check_reply, replies, [(0, "B"), (1, "B"), (2, "I")]
    heads = [Head(3, Version(4, 12345)).encode(), Head(0, Version(0, 2**32 - 1)).encode()]
    yield "head", Head.decode, _check_head, heads, [(0, "B"), (1, "I"), (5, "I"), (9, "I")]


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


def _check_reply(found, data):
    assert encode_reply(*found) == data


def _check_head(head, data):
    assert head.encode() == data


def decode_or_reject(decode, check, data):
    """Return whether the data decodes; fail if it raises anything but a `DecodeError`."""
    try:
        found = decode(data)
    except DecodeError:
        return False
    check(found, data)
    return True


def cost(decode, data):
    """Return (CPU seconds, peak of the bytes allocated, the `DecodeError` or None)."""
    rejected = None
    tracemalloc.start()
    seconds = time.process_time()
    try:
        decode(data)
    except DecodeError as error:
        rejected = error
    seconds = time.process_time() - seconds
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return seconds, peak, rejected


def position_bits_bound(count, b, size):
    """Return the most bits of ``count`` positions, for claims that no valid update makes too."""
    return max_bits(min(count, size), min(b, 31), size)
