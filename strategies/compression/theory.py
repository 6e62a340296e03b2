"""What messages cost by the papers' formulas, in bits; what is really sent is counted as sent.

Sattler et al. 2020, section V and VI, for sparsity p and n parameters.
"""

from strategies.compression.golomb import parameter

FLOAT_BITS = 32


def position_bits(sparsity: float) -> float:
    """Return the expected bits of one position: b* + 1 / (1 - (1 - p)^(2^b*)).

    6.085, 8.108 and 10.114 at p = 1/25, 1/100 and 1/400.
    """
    b = parameter(sparsity)
    return b + 1 / (1 - (1 - sparsity) ** (1 << b))


def ternary_bits(size: int, sparsity: float) -> float:
    """Return the bits of an STC message: n * p positions, each with one sign bit."""
    return size * sparsity * (position_bits(sparsity) + 1)


def sparse_bits(size: int, sparsity: float) -> float:
    """Return the bits of a top-k message: n * p positions, each with a float32."""
    return size * sparsity * (position_bits(sparsity) + FLOAT_BITS)


def sign_bits(size: int) -> float:
    """Return the bits of a signSGD message: one an entry."""
    return float(size)


def dense_bits(size: int) -> float:
    """Return the bits of an uncompressed message: 32 an entry."""
    return float(FLOAT_BITS * size)
