"""The contract of `strategies.compression.compressor`, checked for every built-in compressor.

A new compressor needs one line in `COMPRESSORS`; the tests run for each of its scopes.
"""

import inspect
import math
import pickle
import struct
import warnings
from dataclasses import dataclass

import numpy as np
import pytest

from strategies import compression
from strategies.compression.decoded_update import DecodeError, Update
from strategies.compression.error_feedback import DivergedError, compress
from strategies.compression.vector_layout import SCOPES, Layout
from tests.support.compression_reference import LARGEST, SMALLEST, generator, layout_of
from tests.support.mutations import check_update, cost, decode_or_reject, mutants


@dataclass(frozen=True)
class Case:
    """A compressor of the list.

    Attributes:
        arguments: What it is built with.
        idempotent: Whether encoding a decoded update gives an equal update.
        tolerance: By what share the encoded size may differ from ``expected_bits``, for the entries
            of a normal distribution.
        deterministic: Whether its bytes are the same for every seed.
    """

    arguments: dict
    idempotent: bool = True
    tolerance: float = 0.01
    deterministic: bool = True


COMPRESSORS = {
    "float16": Case({}),
    "float32": Case({}),
    "low-rank": Case({}, idempotent=False, tolerance=0, deterministic=False),
    "quantized": Case({"bits": 4}, idempotent=False, tolerance=0.02, deterministic=False),
    "random": Case({"sparsity": 0.5}, idempotent=False, deterministic=False),
    "rotated": Case({"bits": 2}, idempotent=False, deterministic=False),
    "sign": Case({"step": 0.5}),
    "sparse": Case({"sparsity": 0.05}),
    "ternary": Case({"sparsity": 0.05}),
    "zstd": Case({"of": "float16"}, tolerance=0.2),  # the formula is a bound
}

LAYOUT = Layout(("weight", "bias", "empty", "scale"), ((9, 13), (13,), (0, 4), ()))
# 141 000 entries.
LARGE = Layout(("weight", "bias", "scale"), ((350, 400), (999,), ()))


def _runs():
    for name, case in COMPRESSORS.items():
        parameters = inspect.signature(type(compression.build(name))).parameters
        for scope in SCOPES if "scope" in parameters else [None]:
            arguments = case.arguments | ({"scope": scope} if scope else {})
            yield pytest.param((name, arguments), case, id=f"{name}-{scope}" if scope else name)


every_compressor = pytest.mark.parametrize(("built", "case"), list(_runs()))


def build(built):
    return compression.build(*built)


def vectors(layout=LAYOUT):
    """Return vectors as training and aggregation make them, and at the ends of float32."""
    rng, size = generator(5), layout.size
    normal = rng.standard_normal(size, dtype=np.float32)
    edges = np.array([0.0, -0.0, SMALLEST, -SMALLEST, 1e-40, LARGEST, -LARGEST], np.float32)
    return {
        "normal": normal,
        "mostly zero": np.where(rng.random(size) < 0.02, normal, 0).astype(np.float32),
        "zero": np.zeros(size, np.float32),
        "equal": np.full(size, -0.25, np.float32),
        "integers": rng.integers(-2, 3, size).astype(np.float32),
        "edges": rng.choice(edges, size),
    }


def test_every_built_in_compressor_is_listed():
    assert sorted(COMPRESSORS) == compression.names()


@every_compressor
def test_round_trip_gives_a_finite_update_of_the_layouts_size(built, case):
    compressor = build(built)
    for vector in vectors().values():
        update = compressor.decode(compressor.encode(vector, LAYOUT, generator()), LAYOUT)
        assert isinstance(update, Update)
        check_update(update, LAYOUT.size)


@every_compressor
def test_update_points_in_the_direction_of_the_vector(built, case):
    compressor = build(built)
    for name, vector in vectors().items():
        update = compressor.decode(compressor.encode(vector, LAYOUT, generator()), LAYOUT)
        product = np.dot(update.to_dense().astype(np.float64), vector.astype(np.float64))
        assert product > 0 or name == "zero"


@every_compressor
def test_encoding_a_decoded_update_gives_an_equal_update(built, case):
    if not case.idempotent:
        pytest.skip("not idempotent")
    compressor = build(built)
    for name, vector in vectors().items():
        data = compressor.encode(vector, LAYOUT, generator())
        update = compressor.decode(data, LAYOUT).to_dense()
        again = compressor.encode(update, LAYOUT, generator())
        assert compressor.decode(again, LAYOUT).to_dense().tobytes() == update.tobytes(), name
        if case.deterministic:
            assert again == data, name


@every_compressor
def test_encoded_size_is_the_expected_bits_within_the_tolerance(built, case):
    compressor = build(built)
    assert LARGE.size >= 10**5
    data = compressor.encode(vectors(LARGE)["normal"], LARGE, generator())
    assert 8 * len(data) == pytest.approx(compressor.expected_bits_of(LARGE), rel=case.tolerance)


@every_compressor
def test_same_seed_gives_the_same_bytes(built, case):
    for vector in vectors().values():
        encoded = {build(built).encode(vector, LAYOUT, generator(7)) for _ in range(3)}
        assert len(encoded) == 1
        if case.deterministic:
            assert encoded == {build(built).encode(vector, LAYOUT, generator(8))}


@every_compressor
def test_bytes_decode_alike_for_every_receiver(built, case):
    """No state: not of the instance that encoded, nor of what was encoded or decoded before."""
    sender, busy = build(built), build(built)
    drawn = vectors()
    data = {name: sender.encode(vector, LAYOUT, generator()) for name, vector in drawn.items()}
    expected = {
        name: build(built).decode(data[name], LAYOUT).to_dense().tobytes() for name in drawn
    }
    other = layout_of(7, 70)
    for name in reversed(drawn):
        busy.encode(vectors(other)["normal"], other, generator())
        for receiver in (sender, busy, busy, pickle.loads(pickle.dumps(busy))):
            assert receiver.decode(data[name], LAYOUT).to_dense().tobytes() == expected[name]
        assert busy.encode(drawn[name], LAYOUT, generator()) == data[name]


@every_compressor
def test_encode_does_not_change_the_vector(built, case):
    for vector in vectors().values():
        before = vector.tobytes()
        vector.setflags(write=False)
        build(built).encode(vector, LAYOUT, generator())
        assert vector.tobytes() == before


@every_compressor
def test_decoded_update_does_not_change_with_its_dense_vector(built, case):
    compressor = build(built)
    data = compressor.encode(vectors()["normal"], LAYOUT, generator())
    update = compressor.decode(data, LAYOUT)
    before = update.to_dense().tobytes()
    update.to_dense()[:] = 7
    assert update.to_dense().tobytes() == before


@every_compressor
def test_bytes_of_another_layout_are_rejected_or_decode_for_the_layout_given(built, case):
    compressor = build(built)
    for other in (layout_of(1), layout_of(132), layout_of(117, 13), layout_of(400, 3)):
        data = compressor.encode(vectors()["normal"], LAYOUT, generator())
        decode_or_reject(
            lambda data, to=other: compressor.decode(data, to),
            lambda update, _, to=other: check_update(update, to.size),
            data,
        )


# Wherever a format has its integers.
ANY_FIELDS = [(offset, form) for offset in range(12) for form in "BI"]


@every_compressor
def test_damaged_bytes_are_rejected_or_decode_to_a_valid_update(built, case):
    compressor, rng = build(built), generator(3)
    decoded = count = 0
    with warnings.catch_warnings(), np.errstate(all="raise"):
        warnings.simplefilter("error")
        for layout in (LAYOUT, layout_of(1), layout_of(4, 0, 9, 3)):
            drawn = vectors(layout).values()
            payloads = [compressor.encode(vector, layout, rng) for vector in drawn]
            for data in mutants(rng, payloads, 1500, ANY_FIELDS):
                count += 1
                try:
                    decoded += decode_or_reject(
                        lambda data, to=layout: compressor.decode(data, to),
                        lambda update, _, to=layout: check_update(update, to.size),
                        data,
                    )
                except Exception as error:
                    pytest.fail(f"{error!r} from {data.hex()}")
    assert 0.01 < decoded / count < 0.9, "neither all damaged beyond use nor all valid"


@every_compressor
@pytest.mark.parametrize("claim", [2**16, 2**24, 2**31, 2**32 - 1])
def test_claimed_counts_without_the_bytes_cost_bounded_memory_and_time(built, case, claim):
    """Any four bytes of a short message may be a count; none is allocated before it is checked."""
    compressor = build(built)
    full = compressor.encode(vectors(LARGE)["normal"], LARGE, generator())
    for offset in range(13):
        data = bytearray(full[:64])
        struct.pack_into("<I", data, offset, claim)
        seconds, peak, rejected = cost(lambda data: compressor.decode(data, LARGE), bytes(data))
        assert isinstance(rejected, DecodeError), offset
        assert peak < 4 * LARGE.size, offset  # zstd's frame states its content's size
        assert seconds < 1


@every_compressor
@pytest.mark.parametrize("fill", [b"\0", b"\xff", b"\xaa"])
def test_cost_of_decoding_is_bounded_by_the_model(built, case, fill):
    """Full-size messages with any number in the head, and messages far longer than the model."""
    compressor, model_bytes = build(built), 4 * LARGE.size
    full = compressor.encode(vectors(LARGE)["normal"], LARGE, generator())
    for size in (len(full), model_bytes, 8 * model_bytes):
        for offset, number in ((0, 1), (1, LARGE.size), (1, 2**31), (5, 1), (5, LARGE.size)):
            data = bytearray((full[:16] + fill * size)[:size])
            struct.pack_into("<I", data, offset, number)
            data = bytes(data)
            seconds, peak, _ = cost(lambda data: compressor.decode(data, LARGE), data)
            assert peak < 20 * model_bytes
            assert seconds < 1


@every_compressor
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_vector_that_is_not_finite_never_becomes_such_an_update(built, case, value):
    """`encode` asks for finite values; `compress` checks that, and no receiver sees others."""
    compressor = build(built)
    vector = vectors()["normal"]
    vector[[3, 120]] = value
    with pytest.raises(DivergedError, match="NaN or infinite"):
        compress(vector, np.zeros_like(vector), compressor, LAYOUT, generator())
    with np.errstate(all="ignore"):
        data = compressor.encode(vector, LAYOUT, generator())
    decode_or_reject(
        lambda data: compressor.decode(data, LAYOUT),
        lambda update, _: check_update(update, LAYOUT.size),
        data,
    )
