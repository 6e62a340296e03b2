"""Quantisation after a random rotation: DRIVE (one bit an entry) and EDEN (up to four).

S. Vargaftik et al.: DRIVE: One-bit Distributed Mean Estimation. NeurIPS 2021, arXiv 2105.08339.
S. Vargaftik et al.: EDEN: Communication-Efficient and Robust Distributed Mean Estimation for
Federated Learning. ICML 2022, arXiv 2108.08842. The rotated entries y of a block (`hadamard`) are
nearly normal. Each is sent as the nearest y' of 2^bits levels, those of the best quantiser of a
normal variable (J. Max: Quantizing for Minimum Distortion, IRE Transactions on Information Theory
6(1), 1960, table I), and each block with a scale S by which the levels are multiplied.
"""

import math
from typing import Annotated

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass

from .bit_packing import pack, packed_size, unpack
from .compressor import Compressor
from .decoded_update import DecodeError, DenseUpdate, Vector, read_floats
from .hadamard import FLOAT32_MAX, Matrix, Rotation, block_sizes
from .vector_layout import Layout

Bits = Annotated[int, Field(ge=1, le=4)]
SEED_BYTES, SCALE_BITS = 8, 32

# The levels by bits per entry, rising, for a standard deviation of 10^4; and the mean squared error
# for a deviation of 1.
DEVIATION = 10**4
LEVELS = {
    bits: np.array([*(-level for level in reversed(positive)), *positive], np.float64)
    for bits, positive in {
        1: (7979,),
        2: (4528, 15100),
        3: (2451, 7560, 13440, 21520),
        4: (1284, 3881, 6568, 9424, 12560, 16180, 20690, 27330),
    }.items()
}
DISTORTIONS = {1: 1 - 2 / math.pi, 2: 0.1175, 3: 0.03454, 4: 0.009497}


@dataclass(frozen=True)
class Rotated(Compressor):
    """Sends every rotated entry as one of 2^bits levels.

    Args:
        bits: Bits per entry, from 1 to 4.
        unbiased: Whether S = ||y||^2 / <y, y'>, so that the mean over seeds is the update: exactly
            for uniform rotations, here up to a bias too small to measure (`hadamard`). Then E||Q(v)
            - v||^2 is about (pi / 2 - 1) ||v||^2 for one bit (DRIVE, theorem 3). Else S = <y, y'> /
            ||y'||^2, which is nearest to the update, for error feedback.
    """

    bits: Bits = 1
    unbiased: bool = True

    def encode(self, vector: Vector, layout: Layout, rng: np.random.Generator) -> bytes:
        """Return the update's bytes."""
        seed = int(rng.integers(2**64, dtype=np.uint64))
        packed, scales = [b""], [np.empty(0)]
        for y, unit in Rotation(seed, len(vector)).forward(vector):
            squares = (y * y).sum(axis=1, keepdims=True)
            deviation, levels = np.sqrt(squares / y.shape[1]), LEVELS[self.bits]
            number = np.zeros(y.shape, np.uint8)  # of the nearest level, from the lowest
            for border in (levels[1:] + levels[:-1]) / 2 / DEVIATION:
                number += (y >= border * deviation).view(np.uint8)
            packed.append(pack(number.reshape(-1), self.bits))  # of a multiple of 256 entries
            sent = levels.take(number)
            y *= sent
            product = y.sum(axis=1, keepdims=True)
            if self.unbiased:
                scale = squares / np.where(product > 0, product, 1)
            else:
                scale = product / (sent * sent).sum(axis=1, keepdims=True)
            scales.append(scale[:, 0] * unit)
        head = np.concatenate(scales).clip(0, FLOAT32_MAX).astype("<f4").tobytes()
        return b"".join([seed.to_bytes(SEED_BYTES, "little"), head, *packed])

    def decode(self, data: bytes, layout: Layout) -> DenseUpdate:
        """Return the update; DecodeError if the bytes are not one of this layout."""
        blocks = block_sizes(layout.size)
        start = SEED_BYTES + 4 * len(blocks)
        if len(data) < start:
            raise DecodeError(f"{len(data)} bytes, the scales end at {start}")
        scales = read_floats(data[SEED_BYTES:start])
        if np.signbit(scales).any():
            raise DecodeError("a scale is negative")
        packed, size = memoryview(data)[start:], packed_size(sum(blocks), self.bits)
        if len(packed) != size:
            raise DecodeError(f"{len(packed)} bytes, not {size} for {sum(blocks)} numbers")

        def levels(part: slice) -> Matrix:
            data = packed[part.start * self.bits // 8 : part.stop * self.bits // 8]
            return LEVELS[self.bits].take(unpack(data, part.stop - part.start, self.bits))

        rotation = Rotation(int.from_bytes(data[:SEED_BYTES], "little"), layout.size)
        return DenseUpdate(rotation.back(levels, scales.astype(np.float64)))

    def error_bound(self, size: int) -> float:
        """Return the distortion D of Max's quantiser.

        D / (1 - D) with the unbiased scale, pi / 2 - 1 for one bit. In small blocks the rotated
        entries are not quite normal, and the error differs by some per cent.
        """
        distortion = DISTORTIONS[self.bits]
        return distortion / (1 - distortion) if self.unbiased else distortion

    def expected_bits(self, layout: Layout) -> float:
        """Return ``bits`` an entry, a scale for each block, and the seed."""
        blocks = block_sizes(layout.size)
        return float(self.bits * sum(blocks) + SCALE_BITS * len(blocks) + 8 * SEED_BYTES)
