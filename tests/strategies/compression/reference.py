"""The compressed forms again, slowly and by their definitions alone: plain Python, bit by bit."""

import struct

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

# Machines are busy at times.
UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

SMALLEST = 1.401298464324817e-45  # float32's least denormal
LARGEST = 3.4028234663852886e38

# Ties, zeros of both signs, denormals and the largest numbers are common here, not rare.
TELLING = [0.0, -0.0, 1.0, -1.0, 2.0, SMALLEST, -SMALLEST, 1e-40, LARGEST, -LARGEST]
FINITE = st.one_of(
    st.sampled_from(TELLING),
    st.floats(width=32, allow_nan=False, allow_infinity=False),
)
SPARSITY = st.one_of(st.sampled_from([1 / 400, 1 / 25, 0.5, 1.0]), st.floats(1e-6, 1.0))


def float32(values):
    return np.array(values, np.float32)


def vectors(least=0, most=60, entries=FINITE):
    """Draw float32 vectors: dense ones, and some that are mostly zeros."""
    mostly_zero = st.tuples(st.lists(entries, min_size=least, max_size=most), st.randoms())
    return st.one_of(
        st.lists(entries, min_size=least, max_size=most).map(float32),
        mostly_zero.map(
            lambda drawn: float32([x if drawn[1].random() < 0.1 else 0.0 for x in drawn[0]])
        ),
    )


@st.composite
def in_blocks(draw, entries=FINITE):
    """Draw (a vector, sizes of its blocks): some blocks are empty, some have one entry."""
    blocks = draw(st.lists(st.integers(0, 25), min_size=1, max_size=5))
    return draw(vectors(sum(blocks), sum(blocks), entries)), tuple(blocks)


def top_k(values, count):
    """Return the first ``count`` by (magnitude, earlier position), as sorted positions, no zeros.

    Any magnitude of float32 is exact as a Python float.
    """
    order = sorted(range(len(values)), key=lambda i: (-abs(float(values[i])), i))
    return sorted(i for i in order[:count] if float(values[i]) != 0)


def position_code(positions, b):
    """Return the code of positions as a string of 0 and 1."""
    unary, remainders, last = "", "", -1
    for position in positions:
        quotient, remainder = divmod(position - last - 1, 2**b)
        unary += "1" * quotient + "0"
        remainders += format(remainder, f"0{b}b") if b else ""
        last = position
    return unary + remainders


class Bits:
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

    def end(self):
        assert len(self.bits) - self.at < 8
        assert "1" not in self.bits[self.at :]


def decode_ternary(data, blocks):
    """Return the vector as a list of numbers."""
    b, count = struct.unpack_from("<BI", data)
    magnitudes = struct.unpack_from(f"<{len(blocks)}f", data, 5)
    bits = Bits(data[5 + 4 * len(blocks) :])
    vector = [0.0] * sum(blocks)
    block_of = [block for block, size in enumerate(blocks) for _ in range(size)]
    for position in bits.positions(count, b):
        vector[position] = magnitudes[block_of[position]]
    for position in [i for i, x in enumerate(vector) if x]:
        vector[position] *= -1 if bits.take() == "1" else 1
    bits.end()
    return vector


def decode_sparse(data, size):
    b, count = struct.unpack_from("<BI", data)
    values = struct.unpack_from(f"<{count}f", data, 5)
    bits = Bits(data[5 + 4 * count :])
    vector = [0.0] * size
    for position, value in zip(bits.positions(count, b), values, strict=True):
        vector[position] = value
    bits.end()
    return vector


def decode_signs(data, size):
    step, b, count = struct.unpack_from("<fBI", data)
    bits = Bits(data[9:])
    zeros = set(bits.positions(count, b))
    vector = [
        0.0 if position in zeros else -step if bits.take() == "1" else step
        for position in range(size)
    ]
    bits.end()
    return vector
