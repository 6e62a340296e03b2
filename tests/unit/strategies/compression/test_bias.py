"""The errors of compressors are what they claim, on vectors that are hard to compress.

Unbiased: the mean over seeds is the vector, in every entry, within its measured standard error.
Contractions: the squared error is at most the bound that `error_bound` states.
"""

import numpy as np
import pytest

from strategies import compression
from strategies.compression.floats import Float16
from strategies.compression.hadamard import BLOCK
from strategies.compression.rotated import Rotated
from tests.support.compression_reference import decoded, generator

UNBIASED = [
    ("quantized", {"bits": 2}),
    ("quantized", {"bits": 4, "norm": "max"}),
    ("quantized", {"bits": 8, "bucket": 100}),
    ("quantized", {"bits": 3, "bucket": 1, "norm": "max"}),
    ("random", {"sparsity": 0.1, "unbiased": True}),
    ("rotated", {"bits": 1}),
    ("rotated", {"bits": 2}),
    ("rotated", {"bits": 4}),
]


def spike(size, share=0.5):
    """Return a vector of which one entry has that share of the squared norm."""
    vector = generator(5).standard_normal(size)
    vector[size // 3] = np.sqrt(share / (1 - share) * (vector**2).sum())
    return vector.astype(np.float32)


VECTORS = {
    "one": np.array([0.7], np.float32),
    "tail": np.array([1, 0.9], np.float32),
    "three": np.array([1, -0.5, 0.25], np.float32),
    "equal": np.full(300, 0.5, np.float32),
    "tiny": (1e-20 * np.array([1, -0.9, 0.3])).astype(np.float32),
    "spike": spike(300),
    # The last blocks of the tasks' models: 7,850 and 1,663,370 entries end in 170 and 138.
    "logistic": np.r_[generator(6).standard_normal(168), 1, 0.9].astype(np.float32),
    "cnn": np.r_[generator(7).standard_normal(136), -0.2, 0.18].astype(np.float32),
    **{f"block of {2**k}": spike(2**k, 0.2) for k in (8, 9, 10)},
}


def worst_entry(name, arguments, vector, seeds):
    """Return the largest bias of an entry, in standard errors of its mean over the seeds."""
    total, squares, largest = np.zeros(len(vector)), np.zeros(len(vector)), 0.0
    for found in decoded(compression.build(name, arguments), vector, seeds):
        total += found - vector
        squares += (found - vector) ** 2
        largest = max(largest, float(np.abs(found - vector).max()))
    mean = total / seeds
    error = np.sqrt(np.maximum(squares / seeds - mean**2, 0) / seeds)
    # Allows for outcomes that these seeds draw rarely or never, such as a small entry's level, and
    # for the rounding of an entry that is always the same.
    unseen = 2 * largest / seeds + 2.0**-22 * np.abs(vector).max()
    return float((np.abs(mean) / (error + unseen)).max())


def cases(compressors, vectors, quick):
    """Return all pairs; those that are not quick are for `make test-slow`."""
    return [
        pytest.param(
            *named, vector, id=f"{named[0]} {named[1]} {vector}",
            marks=() if named in quick[0] and vector in quick[1] else pytest.mark.slow,
        )
        for named in compressors
        for vector in vectors
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "arguments", "vector"), cases(UNBIASED, VECTORS, (UNBIASED[4:6], ["tail", "logistic"]))
)
def test_mean_over_seeds_is_the_vector_in_every_entry(name, arguments, vector):
    # One of a thousand entries is beyond 4.5 standard errors with a probability of 0.7 %.
    assert worst_entry(name, arguments, VECTORS[vector], 1000) < 5


@pytest.mark.slow
@pytest.mark.parametrize("bits", [1, 4])
def test_mean_over_seeds_is_the_vector_in_a_whole_block_with_a_spike(bits):
    """Half of the squared norm in one entry of 8,192: one transform alone is 17 % off there."""
    vector = spike(BLOCK)
    total = sum(decoded(Rotated(bits), vector, 1000))
    entry = BLOCK // 3
    assert total[entry] / 1000 == pytest.approx(vector[entry], rel=0.005)


ALL = [
    ("float32", {}), ("float16", {}), ("sparse", {"sparsity": 0.1}), ("ternary", {"sparsity": 0.1}),
    ("random", {"sparsity": 0.1}), ("random", {"sparsity": 0.6, "unbiased": True}),
    ("quantized", {"bits": 2, "bucket": 8}), ("quantized", {"bits": 8, "norm": "max"}),
    ("quantized", {"bits": 4}), ("quantized", {"bits": 3, "bucket": 1, "norm": "max"}),
    ("quantized", {"bits": 6}),
    ("rotated", {"unbiased": False}), ("rotated", {"bits": 4, "unbiased": False}),
    ("rotated", {"bits": 1}), ("rotated", {"bits": 2}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "arguments", "vector"),
    cases(ALL, ["equal", "spike", "tiny", "block of 1024", "logistic"], (ALL, ["spike"])),
)
def test_squared_error_is_within_the_stated_bound(name, arguments, vector):
    values = VECTORS[vector].astype(np.float64)
    compressor = compression.build(name, arguments)
    errors = [
        ((update - values) ** 2).sum() for update in decoded(compressor, VECTORS[vector], 200)
    ]
    bound = compressor.error_bound(len(values))
    mean, deviation = float(np.mean(errors)), float(np.std(errors)) / np.sqrt(200)
    # The levels of Max's quantiser are printed with four digits; small blocks are not quite normal.
    slack = 1.05 if name == "rotated" else 1 + 1e-6
    rounding = 2.0**-40
    assert mean - 4 * deviation <= (bound * slack + rounding) * (values**2).sum()


@pytest.mark.parametrize("scale", [1.0, 1e-7, 1e-30, 3e30])
def test_float16_keeps_eleven_bits_of_small_and_large_updates(scale):
    vector = (scale * generator(3).uniform(0.01, 1, 500)).astype(np.float32)
    (found,) = decoded(Float16(), vector, 1)
    np.testing.assert_allclose(found, vector, rtol=2.0**-11)


@pytest.mark.parametrize(
    ("place", "part"),
    [
        ("uplink", "'quantized'"),
        ("uplink", "{name = 'quantized', bits = 2}"),
        ("downlink", "'quantized'"),
        ("uplink", "{name = 'random', unbiased = true}"),
        ("uplink", "'sign'"),
    ],
)
def test_error_feedback_without_a_contraction_is_refused(place, part):
    import tomllib

    import strategies

    arguments = tomllib.loads(f"{place} = {part}") | {"feedback": "residual"}
    with pytest.raises(ValueError, match="error feedback keeps would grow") as refused:
        strategies.build("compressed", arguments)
    assert str(refused.value).startswith(f"{place} = ")
    assert str(refused.value).endswith("feedback = 'none'")
    strategies.build("compressed", {**arguments, "feedback": "none"})
