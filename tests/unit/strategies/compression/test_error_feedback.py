"""Error feedback: what compression leaves out is kept, up to one float32 rounding."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from strategies.compressed_client import compressed
from strategies.compression.codec import Codec
from strategies.compression.decoded_update import DenseUpdate
from strategies.compression.error_feedback import MAX_CHANGE, compress
from strategies.compression.floats import Float32
from strategies.compression.sparse import Sparse
from strategies.compression.sync_protocol import Head, Version
from strategies.compression.ternary import Ternary
from strategies.rounds.client_memory import ClientMemory
from tests.support.compression_reference import (
    FINITE,
    SMALLEST,
    SPARSITY,
    float32,
    generator,
    layout_of,
    no_deadline,
    vectors_in_blocks,
)

COMPRESSORS = {"ternary": Ternary, "sparse": Sparse}


def send(update, residual, compressor, layout):
    """Return a client's bytes, the update that they decode to, and what it then keeps."""
    codec, model = Codec(compressor, Float32()), SimpleNamespace(layout=layout)
    received = SimpleNamespace(random_stream=lambda _: generator())
    version = Version(0, 0)
    lost = Head(codec.digest, 0, refused=False, version=version)
    memory = ClientMemory(1, {"residual": residual})
    data, vectors = compressed(codec, received, memory, lost, model, update.copy())
    accepted = Head(codec.digest, 2, refused=False, version=version)
    memory, nothing = ClientMemory(2, vectors, data), np.zeros_like(update)
    _, left = compressed(codec, received, memory, accepted, model, nothing)
    return data, compressor.decode(data, layout), left["residual"]


@no_deadline
@given(vectors_in_blocks(), st.sampled_from(sorted(COMPRESSORS)), SPARSITY, st.data())
def test_sent_update_and_new_residual_sum_to_update_and_old_residual(
    drawn, compressor, sparsity, data
):
    update, blocks = drawn
    residual = float32(data.draw(st.lists(FINITE, min_size=len(update), max_size=len(update))))
    with np.errstate(over="ignore"):
        accumulated = residual + update
    assume((np.abs(accumulated) <= MAX_CHANGE / 2).all())
    residual_before = residual.copy()

    made, layout = COMPRESSORS[compressor](sparsity), layout_of(*blocks)
    data, sent, left = send(update, residual, made, layout)
    np.testing.assert_array_equal(residual, residual_before)
    assert left.dtype == np.float32
    assert np.isfinite(left).all()
    dense = sent.to_dense()
    not_sent = dense == 0
    np.testing.assert_array_equal(left[not_sent], accumulated[not_sent])
    exact = accumulated.astype(np.float64) - dense
    rounding = np.maximum(np.abs(exact) * 2.0**-24, SMALLEST)
    assert (np.abs(left - exact) <= rounding).all()
    assert data == made.encode(accumulated, layout, generator())
    assert made.decode(data, layout).to_dense().tobytes() == dense.tobytes()


class Faulty(Float32):
    """Makes a mistake in `decode`, or writes to its input."""

    def __init__(self, mistake):
        self.mistake = mistake

    def __str__(self):
        return "faulty"

    def encode(self, vector, layout, rng):
        data = super().encode(vector, layout, rng)
        if self.mistake is None:
            vector[:] = 0
        return data

    def decode(self, data, layout):
        return DenseUpdate(self.mistake(super().decode(data, layout).to_dense()))


@pytest.mark.parametrize(
    ("mistake", "reason"),
    [
        (lambda values: values[1:], "own bytes: the update has 4 entries, not 5"),
        (lambda values: values[:, None], r"own bytes: the update's values have the shape \(5, 1\)"),
        (lambda values: values * np.float32("nan"), "^faulty turns a finite update into NaN"),
        (None, "read-only"),
    ],
)
def test_mistakes_of_a_compressor_are_its_own(mistake, reason):
    vector = np.arange(5, dtype=np.float32)
    with pytest.raises(ValueError, match=reason):
        compress(vector, Faulty(mistake), layout_of(5), generator())
    assert vector.tolist() == [0, 1, 2, 3, 4]
