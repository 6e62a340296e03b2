"""Compressors of model updates: NumPy, no Flower import.

A compressor is a class with `encode`, `decode` and `expected_bits` (`compressor`); one file each:
`float32`, `float16`, `sparse`, `random_entries`, `ternary`, `sign`, `quantized`, `rotated`,
`low_rank`, and `zstandard`, which packs another's bytes. They are made of `largest_entries` (the k
largest entries), `golomb` (positions as bits), `bit_packing` (small numbers as bits) and `hadamard`
(a random rotation), for vectors described by a `vector_layout`. `float16` imports torch, in its
methods. `registry` names them all.
"""

from strategies.compression.registry import COMPRESSORS, FEEDBACK, build, names

__all__ = ["COMPRESSORS", "FEEDBACK", "build", "names"]
