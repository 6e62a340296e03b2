"""Compressors of model updates, one per file, and their names: NumPy, no Flower import.

A compressor is a class with `encode`, `decode` and `expected_bits` (`compressor`). They are built
from `largest_entries` (the k largest entries), `golomb` (positions as bits), `bit_packing` (small
numbers as bits) and `hadamard` (a random rotation), for vectors described by a `vector_layout`.
Add the name of a new compressor here.
"""

from ..registry import Registry
from .compressor import Compressor

COMPRESSORS = Registry[Compressor](
    Compressor,  # type: ignore[type-abstract]
    "compressor",
    {
        "chunked": f"{__name__}.chunked:Chunked",
        "float16": f"{__name__}.floats:Float16",
        "float32": f"{__name__}.floats:Float32",
        "low-rank": f"{__name__}.low_rank:LowRank",
        "quantized": f"{__name__}.quantized:Quantized",
        "random": f"{__name__}.random_entries:RandomEntries",
        "rotated": f"{__name__}.rotated:Rotated",
        "shared": f"{__name__}.shared_entries:SharedEntries",
        "sign": f"{__name__}.sign:Sign",
        "sparse": f"{__name__}.sparse:Sparse",
        "ternary": f"{__name__}.ternary:Ternary",
    },
)
names, build = COMPRESSORS.names, COMPRESSORS.build
__all__ = ["COMPRESSORS", "build", "names"]
