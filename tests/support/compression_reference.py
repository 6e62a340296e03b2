"""The compressed formats from their definitions alone, in plain Python, bit by bit.

Also what tests of compression draw with Hypothesis: vectors, in blocks or not.
"""

import struct

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from strategies.compression.vector_layout import Layout

# For a machine under load.
no_deadline = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

SMALLEST = 1.401298464324817e-45  # the smallest subnormal float32
LARGEST = 3.4028234663852886e38
VGG11_SIZE = 865_482  # of the VGG11* of Sattler et al.

# Ties, zeros of both signs, subnormal and the largest numbers are drawn often.
EDGE_VALUES = [0.0, -0.0, 1.0, -1.0, 2.0, SMALLEST, -SMALLEST, 1e-40, LARGEST, -LARGEST]
FINITE = st.one_of(
    st.sampled_from(EDGE_VALUES), st.floats(width=32, allow_nan=False, allow_infinity=False)
)
SPARSITY = st.one_of(st.sampled_from([1 / 400, 1 / 25, 0.5, 1.0]), st.floats(1e-6, 1.0))


def float32(values):
    return np.array(values, np.float32)


def generator(seed=0):
    return np.random.default_rng(seed)


def decoded(compressor, vector, seeds):
    """Yield what each seed's bytes decode to, in float64."""
    layout = layout_of(len(vector))
    for seed in range(seeds):
        data = compressor.encode(vector, layout, generator(seed))
        yield compressor.decode(data, layout).to_dense().astype(np.float64)


def layout_of(*sizes):
    """Return the layout of one-dimensional arrays of these sizes."""
    return Layout(tuple(f"array{i}" for i in range(len(sizes))), tuple((size,) for size in sizes))


def vectors(min_size=0, max_size=60, entries=FINITE):
    """Draw float32 vectors, dense or mostly zeros."""
    lists = st.lists(entries, min_size=min_size, max_size=max_size)
    return st.one_of(
        lists.map(float32),
        st.tuples(lists, st.randoms()).map(
            lambda drawn: float32([x if drawn[1].random() < 0.1 else 0.0 for x in drawn[0]])
        ),
    )


@st.composite
def vectors_in_blocks(draw, entries=FINITE):
    """Draw (a vector, sizes of its blocks): some blocks are empty, some have one entry."""
    blocks = draw(st.lists(st.integers(0, 25), min_size=1, max_size=5))
    return draw(vectors(sum(blocks), sum(blocks), entries)), tuple(blocks)


def largest(values, count):
    """Return the first ``count`` by (magnitude, earlier position), as sorted positions, no zeros.

    Any magnitude of float32 is exact as a Python float.
    """
    order = sorted(range(len(values)), key=lambda i: (-abs(float(values[i])), i))
    return sorted(i for i in order[:count] if float(values[i]) != 0)


def algorithm_2(model, changes, p_up, p_down, blocks):
    """Return the model after Sattler et al., Algorithm 2 with all clients, on dense arrays.

    Args:
        model: The initial vector.
        changes: One list per round, with one change per client.
        p_up: The clients' sparsity.
        p_down: The server's.
        blocks: The sizes of what is compressed as one.
    """
    ends = np.cumsum(blocks)

    def compress(vector, p):
        sent = np.zeros_like(vector)
        for start, stop in zip(ends - blocks, ends, strict=True):
            part = vector[start:stop]
            k = max(int(np.ceil(len(part) * p)), 1)
            kept = np.argsort(-np.abs(part), kind="stable")[:k]
            sent[start:stop][kept] = np.sign(part[kept]) * np.abs(part[kept]).mean()
        return sent

    residuals, server = [np.zeros(len(model)) for _ in changes[0]], np.zeros(len(model))
    for in_round in changes:
        sent = []
        for client, change in enumerate(in_round):
            accumulated = residuals[client] + change
            sent.append(compress(accumulated, p_up))
            residuals[client] = accumulated - sent[-1]
        total = server + np.mean(sent, axis=0)
        update = compress(total, p_down)
        server = total - update
        model = model + update
    return model


def position_code(positions, b):
    """Return the code of positions as a string of 0 and 1."""
    unary, remainders, last = "", "", -1
    for position in positions:
        quotient, remainder = divmod(position - last - 1, 2**b)
        unary += "1" * quotient + "0"
        remainders += format(remainder, f"0{b}b") if b else ""
        last = position
    return unary + remainders


class BitReader:
    """Reads bits one after the other, the most significant of a byte first."""

    def __init__(self, data):
        self.bits = "".join(format(byte, "08b") for byte in data)
        self.at = 0

    def take(self):
        self.at += 1
        return self.bits[self.at - 1]

    def positions(self, count, b):
        quotients = []
        for _ in range(count):
            quotients.append(0)
            while self.take() == "1":
                quotients[-1] += 1
        positions, last = [], -1
        for quotient in quotients:
            remainder = 0
            for _ in range(b):
                remainder = 2 * remainder + int(self.take())
            last += quotient * 2**b + remainder + 1
            positions.append(last)
        return positions

    def check_end(self):
        assert len(self.bits) - self.at < 8
        assert "1" not in self.bits[self.at :]


def decode_ternary(data, blocks):
    """Return the vector as a list of numbers."""
    b, count = struct.unpack_from("<BI", data)
    magnitudes = struct.unpack_from(f"<{len(blocks)}f", data, 5)
    bits = BitReader(data[5 + 4 * len(blocks) :])
    vector = [0.0] * sum(blocks)
    block_of = [block for block, size in enumerate(blocks) for _ in range(size)]
    for position in bits.positions(count, b):
        vector[position] = magnitudes[block_of[position]]
    for position in [i for i, x in enumerate(vector) if x]:
        vector[position] *= -1 if bits.take() == "1" else 1
    bits.check_end()
    return vector


def decode_sparse(data, blocks):
    b, count = struct.unpack_from("<BI", data)
    values = struct.unpack_from(f"<{count}f", data, 5)
    bits = BitReader(data[5 + 4 * count :])
    vector = [0.0] * sum(blocks)
    for position, value in zip(bits.positions(count, b), values, strict=True):
        vector[position] = value
    bits.check_end()
    return vector


def decode_sign(data, blocks):
    step, b, count = struct.unpack_from("<fBI", data)
    bits = BitReader(data[9:])
    zeros = set(bits.positions(count, b))
    vector = [
        0.0 if position in zeros else -step if bits.take() == "1" else step
        for position in range(sum(blocks))
    ]
    bits.check_end()
    return vector


def decode_float32(data, blocks):
    return list(struct.unpack(f"<{sum(blocks)}f", data))


DECODERS = {
    "float32": decode_float32,
    "sign": decode_sign,
    "sparse": decode_sparse,
    "ternary": decode_ternary,
}
