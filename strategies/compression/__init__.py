"""Compressors of model updates, one per file, and their names: NumPy, no Flower import.

A compressor is a class with `encode`, `decode` and `expected_bits` (`compressor`). They are built
from `largest_entries` (the k largest entries), `golomb` (positions as bits), `bit_packing` (small
numbers as bits) and `hadamard` (a random rotation), for vectors described by a `vector_layout`.
`float16` imports torch, in its methods. Add the name of a new compressor here.
"""

from strategies.compression.compressor import Compressor
from strategies.compression.error_feedback import ErrorFeedback
from strategies.registry import Registry

COMPRESSORS = Registry[Compressor](
    Compressor,  # type: ignore[type-abstract]
    "compressor",
    {
        "float16": "strategies.compression.float16:Float16",
        "float32": "strategies.compression.float32:Float32",
        "low-rank": "strategies.compression.low_rank:LowRank",
        "quantized": "strategies.compression.quantized:Quantized",
        "random": "strategies.compression.random_entries:RandomEntries",
        "rotated": "strategies.compression.rotated:Rotated",
        "sign": "strategies.compression.sign:Sign",
        "sparse": "strategies.compression.sparse:Sparse",
        "ternary": "strategies.compression.ternary:Ternary",
    },
)
FEEDBACK = Registry[ErrorFeedback](
    ErrorFeedback,  # type: ignore[type-abstract]
    "error feedback",
    {
        "momentum": "strategies.compression.error_feedback:MomentumCorrection",
        "none": "strategies.compression.error_feedback:NoFeedback",
        "residual": "strategies.compression.error_feedback:Residual",
    },
)
names, build = COMPRESSORS.names, COMPRESSORS.build
__all__ = ["COMPRESSORS", "FEEDBACK", "build", "names"]
