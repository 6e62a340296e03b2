"""Compressors of model updates: NumPy, no Flower import.

A compressor is a class with `encode`, `decode` and `expected_bits` (`compressor`); one file each:
`float32`, `float16`, `sparse`, `random_entries`, `ternary`, `sign`, `quantized`, `rotated`,
`low_rank`, and `zstandard`, which packs another's bytes. They are made of `largest_entries` (the k
largest entries), `golomb` (positions as bits), `bit_packing` and `mostly_zero` (small numbers as
bits), `buckets`, `hadamard` (a random rotation), `max_quantizer` and `power_iteration`, for vectors
described by a `vector_layout`. `float16` imports torch, in its methods. `registry` has their names.
"""

from strategies.compression.registry import COMPRESSORS, FEEDBACK, build, names

__all__ = ["COMPRESSORS", "FEEDBACK", "build", "names"]
