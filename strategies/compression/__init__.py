"""Compressors of model updates: NumPy, no Flower import.

A compressor is a class with `encode`, `decode` and `expected_bits` (`compressor`); one file each:
`float32`, `float16`, `sparse`, `random_entries`, `ternary`, `sign`, `quantized`, `rotated`,
`low_rank`, and `zstandard`, which packs another's bytes. They are made of `largest_entries` (the k
largest entries), `golomb` (positions as bits), `bit_packing` and `mostly_zero` (small numbers as
bits), `buckets`, `hadamard` (a random rotation), `max_quantizer` and `power_iteration`, for vectors
described by a `vector_layout`. `float16` imports torch, in its methods.
"""

from collections.abc import Mapping
from typing import Any

from strategies.by_name import build_part
from strategies.compression.compressor import Compressor
from strategies.compression.error_feedback import ErrorFeedback

BUILT_IN = {
    "float16": "strategies.compression.float16:Float16",
    "float32": "strategies.compression.float32:Float32",
    "low-rank": "strategies.compression.low_rank:LowRank",
    "quantized": "strategies.compression.quantized:Quantized",
    "random": "strategies.compression.random_entries:RandomEntries",
    "rotated": "strategies.compression.rotated:Rotated",
    "sign": "strategies.compression.sign:Sign",
    "sparse": "strategies.compression.sparse:Sparse",
    "ternary": "strategies.compression.ternary:Ternary",
    "zstd": "strategies.compression.zstandard:Zstandard",
}


FEEDBACK = {
    "ef21": "strategies.compression.ef21:EF21",
    "momentum": "strategies.compression.momentum_correction:MomentumCorrection",
    "none": "strategies.compression.error_feedback:NoFeedback",
    "residual": "strategies.compression.error_feedback:Residual",
}


def names() -> list[str]:
    """Return the names of the built-in compressors."""
    return sorted(BUILT_IN)


def build(name: str, arguments: Mapping[str, Any] | None = None) -> Compressor:
    """Return the compressor of that name.

    Args:
        name: One of `names`, or "package.module:Class" for any importable `Compressor`.
        arguments: What the class is called with.

    Raises:
        ValueError, ImportError, AttributeError: As for `build_part`.
    """
    return build_part(Compressor, "compressor", BUILT_IN, name, arguments)  # type: ignore[type-abstract]


def build_feedback(name: str, arguments: Mapping[str, Any] | None = None) -> ErrorFeedback:
    """Return the error feedback of that name.

    Args:
        name: One of `FEEDBACK`, or "package.module:Class" for any importable `ErrorFeedback`.
        arguments: What the class is called with.

    Raises:
        ValueError, ImportError, AttributeError: As for `build_part`.
    """
    return build_part(ErrorFeedback, "error feedback", FEEDBACK, name, arguments)  # type: ignore[type-abstract]
