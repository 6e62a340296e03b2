"""What holds for all four forms: bytes and back to the last bit, sums, and the refusals."""

import math
import struct

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from strategies.compression.dense import Dense
from strategies.compression.signs import Signs
from strategies.compression.sparse import Sparse, sparsify
from strategies.compression.ternary import Ternary, ternarise
from strategies.compression.update import CodecError, mean
from tests.strategies.compression import reference
from tests.strategies.compression.reference import (
    FINITE,
    LARGEST,
    SMALLEST,
    SPARSITY,
    UNHURRIED,
    float32,
    in_blocks,
    vectors,
)

ternary = st.builds(lambda drawn, p: ternarise(drawn[0], p, drawn[1]), in_blocks(), SPARSITY)
sparse = st.builds(lambda drawn, p: sparsify(drawn[0], p, drawn[1]), in_blocks(), SPARSITY)
steps = st.floats(SMALLEST, LARGEST, width=32)
votes = st.one_of(
    st.lists(st.sampled_from([-1, 0, 1]), max_size=80),
    st.lists(st.sampled_from([0] * 20 + [1, -1]), max_size=80),
    st.lists(st.sampled_from([1, -1] * 10 + [0]), max_size=80),
)
signs = st.builds(lambda step, drawn: Signs(step, np.array(drawn, np.int8)), steps, votes)
dense = st.builds(Dense, vectors())
updates = st.one_of(ternary, sparse, signs, dense)


def decode(data, like):
    shape = like.blocks if isinstance(like, Ternary) else like.size
    return type(like).decode(data, shape)


def fields(update):
    """Return everything the update holds, to the last bit."""
    return {
        name: (value.dtype, value.tobytes()) if isinstance(value, np.ndarray) else value
        for name, value in vars(update).items()
    }


@UNHURRIED
@given(updates)
@example(Dense(float32([-0.0, SMALLEST])))
@example(Sparse(1, np.array([0]), float32([-SMALLEST])))
@example(ternarise(np.ones(300, np.float32), 1.0, (300,)))
@example(ternarise(np.zeros(300, np.float32), 1.0, (100, 200)))
@example(Signs(1.0, np.zeros(300, np.int8)))
def test_bytes_and_back_to_the_last_bit(update):
    back = decode(update.encode(), update)
    assert fields(back) == fields(update)
    assert back.encode() == update.encode()
    assert back.to_dense().dtype == np.float32
    assert back.to_dense().tobytes() == update.to_dense().tobytes()


@UNHURRIED
@given(ternary)
def test_ternary_bytes_read_bit_by_bit(update):
    assert reference.decode_ternary(update.encode(), update.blocks) == update.to_dense().tolist()


@UNHURRIED
@given(sparse)
def test_sparse_bytes_read_bit_by_bit(update):
    assert reference.decode_sparse(update.encode(), update.size) == update.to_dense().tolist()


@UNHURRIED
@given(signs)
def test_sign_bytes_read_bit_by_bit(update):
    assert reference.decode_signs(update.encode(), update.size) == update.to_dense().tolist()


@UNHURRIED
@given(dense)
def test_dense_bytes_are_floats(update):
    values = struct.unpack(f"<{update.size}f", update.encode())
    assert list(values) == update.vector.tolist()


@UNHURRIED
@given(in_blocks(), SPARSITY)
def test_sparsify_keeps_the_largest_as_they_are(drawn, sparsity):
    values, blocks = drawn
    update = sparsify(values, sparsity, blocks)
    kept = ternarise(values, sparsity, blocks).positions
    np.testing.assert_array_equal(update.positions, kept)
    expected = np.zeros_like(values)
    expected[kept] = values[kept]
    np.testing.assert_array_equal(update.to_dense(), expected)


def test_bytes_by_hand():
    # 3 of 12 positions: b = 1; gaps less one are 1, 0, 8: quotients 0, 0, 4; remainders 1, 0, 0.
    positions = np.array([1, 2, 11])
    code = "0011110100"
    update = Ternary((4, 8), positions, np.array([True, False, True]), float32([0.5, 2]))
    head = b"\x01" + struct.pack("<Iff", 3, 0.5, 2)
    assert update.encode() == head + int((code + "101").ljust(16, "0"), 2).to_bytes(2, "big")
    update = Sparse(12, positions, float32([1, -2, 3]))
    head = b"\x01" + struct.pack("<Ifff", 3, 1, -2, 3)
    assert update.encode() == head + int(code.ljust(16, "0"), 2).to_bytes(2, "big")
    moves = np.array([1, 0, 0, 1, -1, -1, 1, 1, 1, 1, 1, 0], np.int8)
    head = struct.pack("<f", 0.25) + b"\x01" + struct.pack("<I", 3)
    bits = int((code + "001100000").ljust(24, "0"), 2).to_bytes(3, "big")
    assert Signs(0.25, moves).encode() == head + bits


@UNHURRIED
@given(updates, st.floats(0.01, 100))
def test_added_to_a_sum_in_float64(update, weight):
    total = np.random.default_rng(0).normal(size=update.size)
    expected = total + weight * update.to_dense().astype(np.float64)
    update.add_to(total, weight)
    np.testing.assert_array_equal(total, expected)


@UNHURRIED
@given(
    st.integers(0, 40).flatmap(
        lambda size: st.lists(
            st.tuples(
                st.lists(FINITE, min_size=size, max_size=size).map(float32),
                st.sampled_from(["ternary", "sparse", "signs", "dense"]),
                st.integers(1, 1000),
            ),
            min_size=1,
            max_size=5,
        )
    )
)
def test_the_mean_is_that_of_the_dense_vectors_in_float64(drawn):
    makers = {
        "ternary": lambda x: ternarise(x, 0.2, (len(x),)),
        "sparse": lambda x: sparsify(x, 0.2, (len(x),)),
        "signs": lambda x: Signs(0.0002, np.sign(x).astype(np.int8)),
        "dense": Dense,
    }
    chosen = [makers[form](vector) for vector, form, _ in drawn]
    weights = [weight for _, _, weight in drawn]
    found = mean(chosen, weights)
    stack = np.stack([update.to_dense().astype(np.float64) for update in chosen])
    expected = np.average(stack, axis=0, weights=weights)
    assert found.dtype == np.float32
    scale = np.abs(stack).max(axis=0)
    assert (
        np.abs(found - expected) <= np.abs(expected) * 2.0**-24 + scale * 1e-14 + SMALLEST
    ).all()


def test_the_mean_by_hand():
    one, other = Dense(float32([1, 0, -4])), Sparse(3, np.array([2]), float32([8]))
    assert mean([one, other], [1, 3]).tolist() == [0.25, 0, 5]


@UNHURRIED
@given(updates)
def test_largest(update):
    assert update.largest() == np.abs(update.to_dense()).max(initial=0)


@UNHURRIED
@given(updates)
def test_what_is_returned_is_new(update):
    before = update.encode()
    update.to_dense()[:] = 7
    total = np.zeros(update.size)
    update.add_to(total, 1)
    total[:] = 7
    assert update.encode() == before


@UNHURRIED
@given(updates, st.data())
def test_any_other_number_of_bytes_is_refused(update, data):
    encoded = update.encode()
    left = data.draw(st.integers(0, max(len(encoded) - 1, 0)))
    if encoded:
        with pytest.raises(CodecError):
            decode(encoded[:left], update)
    with pytest.raises(CodecError):
        decode(encoded + data.draw(st.binary(min_size=1, max_size=9)), update)


GOOD = ternarise(float32([0, 3, 0, 0, -3, 0, 0, 0]), 0.25, (4, 4))


@pytest.mark.parametrize("magnitudes", [(3, math.nan), (3, -3), (3, 0), (math.inf, 3), (3, -0.0)])
def test_ternary_magnitudes_must_be_positive(magnitudes):
    data = bytearray(GOOD.encode())
    struct.pack_into("<ff", data, 5, *magnitudes)
    with pytest.raises(CodecError, match="magnitude"):
        Ternary.decode(bytes(data), (4, 4))


@pytest.mark.parametrize("magnitude", [1, -1, SMALLEST, math.nan, math.inf])
def test_a_block_without_entries_must_have_magnitude_zero(magnitude):
    data = bytearray(ternarise(float32([0, 3, 0, 0, 0, 0, 0, 0]), 0.25, (4, 4)).encode())
    struct.pack_into("<f", data, 9, magnitude)
    with pytest.raises(CodecError, match="magnitude"):
        Ternary.decode(bytes(data), (4, 4))


@pytest.mark.parametrize("value", [0, -0.0, math.nan, math.inf, -math.inf])
def test_sparse_values_must_be_numbers_and_not_zero(value):
    data = Sparse(8, np.array([1, 4]), float32([3, value])).encode()
    with pytest.raises(CodecError, match="a value is zero, NaN or infinite"):
        Sparse.decode(data, 8)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_dense_values_must_be_numbers(value):
    with pytest.raises(CodecError, match="a value is NaN or infinite"):
        Dense.decode(struct.pack("<ff", 1, value), 2)


@pytest.mark.parametrize("step", [0, -0.0, -1, math.nan, math.inf])
def test_steps_must_be_positive(step):
    with pytest.raises(CodecError, match="the step is"):
        Signs.decode(Signs(step, np.array([1, -1], np.int8)).encode(), 2)


@pytest.mark.parametrize(("b", "count"), [(32, 2), (255, 2), (0, 9), (0, 2**32 - 1), (31, 2**31)])
def test_heads_that_fit_no_vector_are_refused(b, count):
    for form, head in (
        (Ternary, struct.pack("<BIf", b, count, 1)),
        (Sparse, struct.pack("<BIff", b, count, 1, 1)),
        (Signs, struct.pack("<fBI", 1, b, count)),
    ):
        with pytest.raises(CodecError, match=f"b = {b} and . = {count}"):
            form.decode(head + bytes(8), (8,) if form is Ternary else 8)
