"""Compressors of model updates: NumPy, no Flower import.

A compressor is a class with `encode`, `decode` and `expected_bits` (`compressor`); one file each:
`float32`, `float16`, `sparse`, `random_entries`, `ternary`, `sign`, `quantized`, `rotated`,
`low_rank`, and `zstandard`, which packs another's bytes. They are made of `largest_entries` (the k
largest entries), `golomb` (positions as bits), `hadamard` (a random rotation), `power_iteration`
and `bit_packing`, for vectors described by a `vector_layout`.
"""

import pkgutil
from collections.abc import Mapping
from typing import Any

from strategies.compression.compressor import Compressor

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


def names() -> list[str]:
    """Return the names of the built-in compressors."""
    return sorted(BUILT_IN)


def build(name: str, arguments: Mapping[str, Any] | None = None) -> Compressor:
    """Return the compressor of that name.

    Args:
        name: One of `names`, or "package.module:Class" for any importable `Compressor`.
        arguments: What the class is called with.

    Raises:
        ValueError: An unknown name, not a compressor, or arguments that it does not take.
        ImportError: There is no such module.
        AttributeError: The module has no such attribute.
    """
    path = BUILT_IN.get(name, name)
    if ":" not in path:
        raise ValueError(f"compressor {name!r}: known are {', '.join(names())}; or module:Class")
    cls = pkgutil.resolve_name(path)
    if not (isinstance(cls, type) and issubclass(cls, Compressor)):
        raise ValueError(f"compressor {name!r} is not a subclass of {Compressor.__name__}")
    try:
        return cls(**(arguments or {}))
    except TypeError as error:
        raise ValueError(f"compressor {name!r}: {error}") from error


def build_given(key: str, given: str | Mapping[str, Any]) -> Compressor:
    """Return the compressor that a value of a config names.

    Args:
        key: The value's key, for the message.
        given: The name, or a table with the name and the arguments, whose hyphens are underscores.

    Raises:
        ValueError: Neither of these, or as for `build`.
        ImportError, AttributeError: As for `build`.
    """
    arguments = {"name": given} if isinstance(given, str) else given
    name = arguments.get("name") if isinstance(arguments, Mapping) else None
    if not isinstance(name, str):
        raise ValueError(f'{key} = {given!r}: give a name, or {{name = "sparse", sparsity = 0.01}}')
    others = {k.replace("-", "_"): v for k, v in arguments.items() if k != "name"}
    return build(name, others)
