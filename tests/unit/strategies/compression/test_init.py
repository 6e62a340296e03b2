"""Compressors by name."""

import pytest

from strategies import compression
from strategies.compression.compressor import Compressor
from strategies.compression.floats import Float32


class Abstract(Compressor):
    """Lacks the methods."""


not_a_class = Float32()


@pytest.mark.parametrize(
    ("name", "arguments", "reason"),
    [
        ("terntary", {}, "'terntary' is no compressor; known: .*ternary"),
        ("builtins:dict", {}, "'builtins:dict' is not a subclass of Compressor"),
        (f"{__name__}:not_a_class", {}, "is not a subclass of Compressor"),
        (f"{__name__}:Abstract", {}, "Abstract: .*abstract"),
        ("sparse", {"sparsty": 0.1}, "Sparse does not take sparsty; it takes: sparsity"),
        ("float32", {"scope": "model"}, "Float32 does not take scope; it takes: no arguments"),
        ("sparse", {"sparsity": 2}, "sparsity = 2: should be less than or equal to 1"),
        ("random", {"sparsity": 0}, "sparsity = 0: should be greater than or equal to 0.00"),
        ("quantized", {"bits": 1}, "bits = 1: should be greater than or equal to 2"),
        ("quantized", {"bits": 2.5}, "bits = 2.5: should be a valid integer"),
        ("quantized", {"bucket": 0}, "bucket = 0: should be greater"),
        ("quantized", {"norm": "l1"}, "norm = 'l1': should be 'l2' or 'max'"),
        ("rotated", {"bits": 5}, "bits = 5: should be less than or equal to 4"),
        ("rotated", {"bits": True}, "bits = True"),
        ("low-rank", {"rank": 0}, "rank = 0: should be greater"),
    ],
)
def test_compressor_that_cannot_be_built_is_named(name, arguments, reason):
    with pytest.raises(ValueError, match=reason):
        compression.build(name, arguments)
