"""Quantisation after a random rotation: DRIVE (one bit an entry) and EDEN (up to four).

S. Vargaftik et al.: DRIVE: One-bit Distributed Mean Estimation. NeurIPS 2021, arXiv 2105.08339.
S. Vargaftik et al.: EDEN: Communication-Efficient and Robust Distributed Mean Estimation for
Federated Learning. ICML 2022, arXiv 2108.08842. The rotated entries of a block (`hadamard`) are
nearly normal. Each is sent as the nearest of the 2^bits levels that are best for a normal
distribution (Lloyd-Max), y' of y, and each block with a scale S by which the levels are multiplied.

Bytes (little endian): the rotation's seed, 8 bytes; a scale for each block, float32; the numbers of
the levels, ``bits`` bits each, those of the last block's padding included.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from strategies.compression.bit_packing import from_bits, pack, to_bits, unpack
from strategies.compression.compressor import Compressor
from strategies.compression.decoded_update import DecodeError, DenseUpdate, Vector
from strategies.compression.hadamard import block_sizes, padded_size, rotate, rotate_back
from strategies.compression.vector_layout import Layout

# The positive levels for a standard normal distribution (J. Max: Quantizing for Minimum Distortion.
# IRE Transactions on Information Theory 6(1), 1960, table I); the others are these, negative.
LEVELS = {
    1: (0.7979,),
    2: (0.4528, 1.510),
    3: (0.2451, 0.7560, 1.344, 2.152),
    4: (0.1284, 0.3881, 0.6568, 0.9424, 1.256, 1.618, 2.069, 2.733),
}
DISTORTIONS = {1: 1 - 2 / math.pi, 2: 0.1175, 3: 0.03454, 4: 0.009497}
SEED_BYTES, SCALE_BITS = 8, 32
FLOAT32_MAX = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class Rotated(Compressor):
    """Sends every rotated entry as one of 2^bits levels.

    Args:
        bits: Of an entry, from 1 to 4.
        unbiased: Whether S = ||y||^2 / <y, y'>, so that the mean over seeds is the update: exactly
            for uniform rotations, here but for what cannot be measured (`hadamard`). Then
            E||Q(v) - v||^2 is about (pi / 2 - 1) ||v||^2 for one bit (DRIVE, theorem 3). Else
            S = <y, y'> / ||y'||^2, which is nearest to the update, for error feedback.

    Raises:
        ValueError: ``bits`` is out of its range.
    """

    bits: int = 1
    unbiased: bool = True

    def __post_init__(self) -> None:
        if self.bits not in LEVELS:
            raise ValueError(f"bits = {self.bits!r}: give a whole number from 1 to 4")

    def encode(self, vector: Vector, layout: Layout, rng: np.random.Generator) -> bytes:
        """Return the bytes that the module's docstring describes."""
        del layout
        seed = int(rng.integers(2**64, dtype=np.uint64))
        levels = self._levels()
        borders = (levels[1:] + levels[:-1]) / 2
        scales, numbers = [np.empty(0)], [np.empty(0, np.uint8)]
        for block in rotate(vector.astype(np.float64), seed):
            spread = np.sqrt(np.mean(block**2, axis=1, keepdims=True))
            standard = np.divide(block, spread, out=np.zeros_like(block), where=spread > 0)
            number = np.searchsorted(borders, standard.reshape(-1), side="right").astype(np.uint8)
            chosen = levels[number].reshape(block.shape)
            product = (standard * chosen).sum(axis=1)
            if self.unbiased:
                scale = (standard**2).sum(axis=1) / np.where(product > 0, product, 1)
            else:
                scale = product / (chosen**2).sum(axis=1)
            scales.append(scale * spread[:, 0])
            numbers.append(number)
        with np.errstate(under="ignore"):
            bounded = np.concatenate(scales).clip(0, FLOAT32_MAX).astype("<f4")
        bits = to_bits(np.concatenate(numbers), self.bits)
        return seed.to_bytes(SEED_BYTES, "little") + bounded.tobytes() + pack(bits)

    def decode(self, data: bytes, layout: Layout) -> DenseUpdate:
        """Return the update.

        Raises:
            DecodeError: The bytes are not such an update for this layout.
        """
        size = layout.size
        blocks, padded = block_sizes(size), padded_size(size)
        start = SEED_BYTES + 4 * sum(count for count, _ in blocks)
        if len(data) != start + self.bits * padded // 8:
            raise DecodeError(f"{len(data)} bytes do not fit a vector of {size} entries")
        scales = np.frombuffer(data[SEED_BYTES:start], "<f4")
        if not (np.isfinite(scales).all() and (scales >= 0).all()):
            raise DecodeError("a scale is negative, NaN or infinite")
        bits = unpack(data[start:], self.bits * padded)
        chosen = self._levels()[from_bits(bits, padded, self.bits)]
        scaled, place, first = [], 0, 0
        for count, block in blocks:
            part = chosen[place : place + count * block].reshape(count, block)
            scaled.append(part * scales[first : first + count, None].astype(np.float64))
            place, first = place + count * block, first + count
        values = rotate_back(scaled, int.from_bytes(data[:SEED_BYTES], "little"), size)
        with np.errstate(under="ignore"):
            return DenseUpdate(values.clip(-FLOAT32_MAX, FLOAT32_MAX).astype(np.float32))

    def error_bound(self, size: int) -> float:
        """Return the distortion D of the best quantiser of a normal variable (Max 1960, table I).

        D / (1 - D) with the unbiased scale, pi / 2 - 1 for one bit. Of small blocks the rotated
        entries are not quite normal, and the error differs by some per cent.
        """
        del size
        distortion = DISTORTIONS[self.bits]
        return distortion / (1 - distortion) if self.unbiased else distortion

    def expected_bits(self, size: int) -> float:
        """Return ``bits`` an entry, a scale for each block, and the seed."""
        scales = sum(count for count, _ in block_sizes(size))
        return float(self.bits * padded_size(size) + SCALE_BITS * scales + 8 * SEED_BYTES)

    def _levels(self) -> NDArray[np.float64]:
        positive = np.array(LEVELS[self.bits])
        return np.concatenate([-positive[::-1], positive])
