"""A million damaged and forged payloads: each decodes to a proper update or is refused.

Every decoder may raise `CodecError` and nothing else, not even a warning; what it accepts keeps
the form's promises. Then the same through the real ends: the server's `check_reply` and the
client's mod.
"""

import copy
import struct
import time
import tracemalloc
import warnings

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from strategies import synced
from strategies.compression.dense import Dense
from strategies.compression.golomb import most_bits
from strategies.compression.signs import Signs
from strategies.compression.sparse import Sparse, sparsify
from strategies.compression.ternary import Ternary, ternarise
from strategies.compression.update import CodecError
from strategies.raw import raw_array
from strategies.screening import ReplyError
from strategies.synced import Entry, Head, Version
from tests.strategies.network import SIZE, Network
from tests.strategies.replies import reply_with

# Payloads per decoder; they sum to more than a million.
COUNTS = {
    "ternary": 260_000,
    "sparse": 220_000,
    "signs": 200_000,
    "dense": 60_000,
    "chain": 140_000,
    "reply": 70_000,
    "head": 70_000,
}
SERVER_REPLIES = 4_000  # per strategy
CLIENT_MESSAGES = 2_000

BLOCKS = {"one": (1,), "few": (4, 0, 9, 3), "some": (64,), "many": (90, 10, 40, 1)}
TELLING = (
    0,
    1,
    2,
    3,
    7,
    8,
    15,
    16,
    17,
    63,
    64,
    65,
    140,
    141,
    142,
    2**16,
    2**31 - 1,
    2**31,
    2**32 - 1,
)


def vector(rng, size):
    """Return a vector with ties and zeros, or one without."""
    if rng.random() < 0.5:
        return rng.integers(-2, 3, size).astype(np.float32)
    return rng.standard_normal(size, dtype=np.float32)


def mutants(rng, payloads, count, fields=()):
    """Yield damaged copies of the payloads.

    Args:
        rng: What to do, and where.
        payloads: Valid ones.
        count: How many to yield.
        fields: (offset, struct format) of integers that get telling values.
    """
    formats = {"B": 2**8, "I": 2**32}
    for start in range(0, count, 1000):
        # Drawn at once: a call of the generator costs more than a mutation.
        draws = iter(rng.integers(0, 2**31, 16_000).tolist())
        noise = rng.bytes(4096)
        for _ in range(min(1000, count - start)):
            data = bytearray(payloads[next(draws) % len(payloads)])
            for _ in range(next(draws) % 3 + 1):
                kind, where, what = next(draws) % 7, next(draws), next(draws)
                at = where % max(len(data), 1)
                if kind == 0 and data:  # a bit
                    data[at] ^= 1 << what % 8
                elif kind == 1 and data:  # a byte
                    data[at] = what % 256
                elif kind == 2:  # too short
                    del data[at:]
                elif kind == 3:  # too long
                    data += noise[where % 4000 :][: what % 40]
                elif kind == 4:  # the beginning of one, the end of another
                    other = payloads[what % len(payloads)]
                    data[at:] = other[min(at, len(other)) :] if what & 1024 else other[what % 7 :]
                elif kind == 5 and data:  # bytes of no meaning in the middle
                    length = what % 9
                    data[at : at + length] = noise[where % 4000 :][:length]
                elif fields:  # numbers that are telling
                    offset, form = fields[where % len(fields)]
                    if offset + struct.calcsize(form) <= len(data):
                        number = TELLING[what % len(TELLING)] if what & 512 else what
                        struct.pack_into("<" + form, data, offset, number % formats[form])
            yield bytes(data)


def assert_update(update, size):
    """Check what every update promises, and that its bytes mean the same update."""
    values = update.to_dense()
    assert (values.dtype, values.shape) == (np.float32, (size,))
    assert np.isfinite(values).all()
    assert update.largest() == np.abs(values).max(initial=0)
    if isinstance(update, Ternary | Sparse):
        positions = update.positions
        assert (np.diff(positions) > 0).all()
        assert not len(positions) or (positions[0] >= 0 and positions[-1] < size)
        assert np.count_nonzero(values) == len(positions)
    if isinstance(update, Ternary):
        assert (update.magnitudes >= 0).all()
    shape = update.blocks if isinstance(update, Ternary) else size
    again = type(update).decode(update.encode(), shape)
    assert again.to_dense().tobytes() == values.tobytes()


def assert_chain(entries, data):
    assert b"".join(entry.encode() for entry in entries) == data
    numbers = [entry.number for entry in entries]
    assert numbers == sorted(set(numbers))


def assert_reply(found, data):
    assert synced.encode_reply(*found) == data


def assert_head(head, data):
    assert head.encode() == data


def updates(rng, blocks):
    """Return valid payloads of each form for a vector in these blocks."""
    size = sum(blocks)
    made = {"ternary": [], "sparse": [], "signs": [], "dense": []}
    for sparsity in (0.01, 0.1, 0.5, 1.0):
        made["ternary"].append(ternarise(vector(rng, size), sparsity, blocks).encode())
        made["sparse"].append(sparsify(vector(rng, size), sparsity, blocks).encode())
        made["dense"].append(vector(rng, size).tobytes())
    for zeros in (0, 0.05, 0.5, 1):
        drawn = rng.choice([-1, 1], size) * (rng.random(size) >= zeros)
        made["signs"].append(Signs(0.5, drawn.astype(np.int8)).encode())
    return made


def cases():
    """Yield (decoder's name, decoder, check of what it returned, valid payloads, fields)."""
    rng = np.random.default_rng(11)
    decoders = {
        "ternary": (lambda blocks: lambda data: Ternary.decode(data, blocks), (0, 1)),
        "sparse": (lambda blocks: lambda data: Sparse.decode(data, sum(blocks)), (0, 1)),
        "signs": (lambda blocks: lambda data: Signs.decode(data, sum(blocks)), (4, 5)),
        "dense": (lambda blocks: lambda data: Dense.decode(data, sum(blocks)), None),
    }
    for blocks in BLOCKS.values():
        size = sum(blocks)
        made = updates(rng, blocks)
        for name, (decoder, at) in decoders.items():
            fields = [(at[0], "B"), (at[1], "I")] if at else []
            check = lambda update, data, size=size: assert_update(update, size)  # noqa: E731
            yield name, decoder(blocks), check, made[name], fields
    every = [payload for forms in made.values() for payload in forms]
    chains, replies = [b""], [synced.encode_reply(synced.NEEDS_MODEL, 0)]
    for length in (1, 2, 5):
        chosen = [every[int(i)] for i in rng.integers(len(every), size=length)]
        chains.append(b"".join(Entry(3 * i + 1, data).encode() for i, data in enumerate(chosen)))
        replies.append(synced.encode_reply(synced.HAS_UPDATE, length, chosen[0]))
    fields = [(0, "I"), (4, "I")]
    yield "chain", synced.decode_chain, assert_chain, chains, fields
    fields = [(0, "B"), (1, "B"), (2, "I")]
    yield "reply", synced.decode_reply, assert_reply, replies, fields
    heads = [Head(3, Version(4, 12345)).encode(), Head(0, Version(0, 2**32 - 1)).encode()]
    yield "head", Head.decode, assert_head, heads, [(0, "B"), (1, "I"), (5, "I"), (9, "I")]


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_million_payloads_end_decoded_or_in_a_codec_error(record_property):
    started = time.monotonic()
    rng = np.random.default_rng(12)
    given = list(cases())
    shares = {name: COUNTS[name] // sum(case[0] == name for case in given) for name in COUNTS}
    total = dict.fromkeys(COUNTS, 0)
    decoded = dict.fromkeys(COUNTS, 0)
    with warnings.catch_warnings(), np.errstate(all="raise"):
        warnings.simplefilter("error")
        for name, decode, check, payloads, fields in given:
            for data in payloads:
                check(decode(data), data)
            for data in mutants(rng, payloads, shares[name], fields):
                total[name] += 1
                try:
                    try:
                        found = decode(data)
                    except CodecError:
                        continue
                    decoded[name] += 1
                    check(found, data)
                except Exception as error:
                    pytest.fail(f"{name}: {error!r} from {data.hex()}")
    seconds = round(time.monotonic() - started, 1)
    record_property("seconds", seconds)
    print(f"{sum(total.values()):,} payloads in {seconds} s; decoded: {decoded} of {total}")
    assert sum(total.values()) >= 1_000_000
    # Neither all bad nor all good: the checks of what was decoded had work.
    for name in COUNTS:
        assert 0.01 < decoded[name] / total[name] < 0.9, (name, decoded, total)


def snapshot(context):
    """Return every byte of the client's state."""
    return {
        name: {
            key: (value.data, value.dtype, tuple(value.shape)) if hasattr(value, "data") else value
            for key, value in record.items()
        }
        for name, record in context.state.items()
    }


STRATEGIES = {
    "stc": {"sparsity_up": 0.1, "sparsity_down": 0.1},
    "topk": {"sparsity_up": 0.1, "sparsity_down": 0.1},
    "signsgd": {},
}


def started(name, rounds=3):
    """Return a network whose clients have been through some rounds."""
    network = Network(name, clients=3, **STRATEGIES[name])
    for _ in range(rounds):
        network.step({client: network.draw() for client in range(3)})
    return network


@pytest.mark.slow
@pytest.mark.parametrize("name", STRATEGIES)
def test_the_server_accepts_or_refuses_every_reply(name):
    network = started(name)
    rng = np.random.default_rng(13)
    messages = network.send(0, 1)
    good = [network.answer(message, network.draw()) for message in messages]
    payloads = [reply.content["update"]["payload"].data for reply in good]
    head = len(synced.encode_reply(0, 0))
    at = head + (4 if name == "signsgd" else 0)
    fields = [(0, "B"), (1, "B"), (2, "I"), (at, "B"), (at + 1, "I")]
    accepted = 0
    for data in mutants(rng, payloads, SERVER_REPLIES, fields):
        content = RecordDict(
            {
                "update": ArrayRecord({"payload": raw_array(data)}),
                "metrics": MetricRecord({"num-examples": 1}),
            }
        )
        try:
            network.strategy.check_reply(reply_with(12, content))
        except ReplyError:
            continue
        except Exception as error:
            pytest.fail(f"{error!r} from {data.hex()}")
        accepted += 1
    assert 0 < accepted < SERVER_REPLIES

    # What was last accepted from that node aside, the round goes on as if nothing had been.
    bad = reply_with(12, RecordDict({"update": ArrayRecord({"payload": raw_array(b"\xff" * 40)})}))
    network.receive([good[0], bad, good[1]])
    assert list(network.strategy.rejected) == [12]
    assert all(np.isfinite(array.numpy()).all() for array in network.model.values())
    network.step({0: network.draw()})


@pytest.mark.slow
@pytest.mark.parametrize("name", STRATEGIES)
def test_the_client_answers_or_raises_and_then_keeps_its_state(name):
    network = started(name)
    rng = np.random.default_rng(14)
    for _ in range(3):  # client 0 sits these out
        network.step({client: network.draw() for client in (1, 2)})
    change = network.draw()
    context, config = network.contexts[0], network.send(0)[0].content["config"]
    sync = network.send(0)[0].content["sync"]
    head, chain = sync["head"].data, sync["updates"].data
    assert len(synced.decode_chain(chain)) == 4  # these three, and the last it took part in
    stored = context.state["synced-version"]
    have = Version(stored["number"], stored["fingerprint"])
    before = snapshot(context)
    ends = {"trained": 0, "needs the model": 0, "raised": 0}
    first = synced.decode_chain(chain)[0]
    entry = 8 + (4 if name == "signsgd" else 0)
    fields = [(0, "I"), (4, "I"), (entry, "B"), (entry + 1, "I")]
    chains = [chain, first.encode(), b""]
    heads = mutants(rng, [head], CLIENT_MESSAGES, [(0, "B"), (1, "I"), (5, "I"), (9, "I")])
    forged = mutants(rng, chains, CLIENT_MESSAGES, fields)
    for turn, (new_head, new_chain) in enumerate(zip(heads, forged, strict=True)):
        if turn % 4 == 0:
            new_chain = chain
        elif turn % 4 > 1:  # a fingerprint that fits, so that the updates themselves are read
            new_head = fitting_head(have, new_chain) or new_head
        message = network.send(0)[0]
        message.content["config"] = config
        message.content["sync"] = ArrayRecord(
            {"head": raw_array(new_head), "updates": raw_array(new_chain)}
        )
        network.contexts[0] = copy.deepcopy(context)
        try:
            with np.errstate(all="ignore"):  # an update may make the sum overflow; it is noticed
                # Now and then training itself fails, after all that was sent has been read.
                reply = network.answer(message, change if turn % 5 else change * np.nan)
        except ValueError:  # a CodecError is one
            ends["raised"] += 1
            assert snapshot(network.contexts[0]) == before
            continue
        except Exception as error:
            pytest.fail(f"{error!r} from head {new_head.hex()}, chain {new_chain.hex()}")
        status, number, data = synced.decode_reply(reply.content["update"]["payload"].data)
        if status == synced.NEEDS_MODEL:
            ends["needs the model"] += 1
            assert snapshot(network.contexts[0]) == before
            continue
        ends["trained"] += 1
        assert number == Head.decode(new_head).version.number
        assert_update(network.strategy.decode_update(data), SIZE)
        model = network.contexts[0].state["synced-model"]
        assert all(np.isfinite(array.numpy()).all() for array in model.values())
    assert min(ends.values()) > CLIENT_MESSAGES // 100, ends


def fitting_head(have, chain):
    """Return the head of a server that would have sent this chain; None where none would."""
    version = have
    try:
        for entry in synced.decode_chain(chain):
            if entry.number > have.number:
                version = version.after(entry.number, entry.update)
    except CodecError:
        return None
    return Head(0, version).encode()


LONG = 1_000_000
MODEL_BYTES = 4 * LONG


def bodies(bits):
    """Return contents for so many bits: what makes positions shortest, longest, and neither."""
    length = bits // 8
    return [b"", bytes(length), b"\xff" * length, b"\xaa" * length, bytes(length) + b"\xff" * 9]


def worst_claims():
    """Yield (what, decoder, payload): heads that claim much, with and without the bytes for it."""
    for b in (0, 1, 8, 19, 31, 255):
        for count in (0, 1, LONG // 400, LONG // 2, LONG - 1, LONG, LONG + 1, 2**31, 2**32 - 1):
            honest = min(count, LONG)
            bits = most_bits(honest, min(b, 31), LONG)
            for body in bodies(bits + honest):
                head = struct.pack("<BIf", b, count, 1)
                yield "ternary", lambda data: Ternary.decode(data, (LONG,)), head + body
            for body in bodies(bits):
                values = np.ones(honest, "<f4").tobytes()
                yield "sparse", decode_sparse, struct.pack("<BI", b, count) + values + body
            for body in bodies(bits + LONG - honest):
                yield "signs", decode_signs, struct.pack("<fBI", 1, b, count) + body
    flood = bytes(4 * MODEL_BYTES)
    yield (
        "ternary",
        lambda data: Ternary.decode(data, (LONG,)),
        struct.pack("<BIf", 9, 1, 1) + flood,
    )
    yield "sparse", decode_sparse, struct.pack("<BIf", 9, 1, 1) + flood
    yield "signs", decode_signs, struct.pack("<fBI", 1, 9, 1) + flood
    for length in (0, MODEL_BYTES - 1, MODEL_BYTES + 1):
        yield "dense", lambda data: Dense.decode(data, LONG), bytes(length)
    for length in (2**31, 2**32 - 1, MODEL_BYTES):
        head = struct.pack("<II", 1, length)
        yield "chain", synced.decode_chain, head
        yield "chain", synced.decode_chain, head + bytes(MODEL_BYTES - 1)
    yield "reply", synced.decode_reply, synced.encode_reply(0, 2**32 - 1, bytes(MODEL_BYTES))
    yield "head", Head.decode, bytes(MODEL_BYTES)


def decode_sparse(data):
    return Sparse.decode(data, LONG)


def decode_signs(data):
    return Signs.decode(data, LONG)


def cost(decode, data):
    """Return (CPU seconds, the most bytes allocated, the refusal or None)."""
    refusal = None
    tracemalloc.start()
    seconds = time.process_time()
    try:
        decode(data)
    except CodecError as error:
        refusal = str(error)
    seconds = time.process_time() - seconds
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return seconds, peak, refusal


@pytest.mark.slow
def test_no_claim_costs_more_than_the_models_size_allows(record_property):
    slowest, most = 0.0, 0
    for name, decode, data in worst_claims():
        seconds, peak, _ = cost(decode, data)
        head = data[:13].hex()
        assert seconds < 1, f"{name}: {seconds:.2f} s for {len(data)} bytes from {head}"
        # An honest payload with every entry (b = 0, k = n) takes 13 times the model's bytes.
        assert peak < 20 * MODEL_BYTES, f"{name}: {peak} bytes for {len(data)} from {head}"
        slowest, most = max(slowest, seconds), max(most, peak)
    record_property("slowest", round(slowest, 3))
    record_property("most-memory-in-models", round(most / MODEL_BYTES, 1))


@pytest.mark.parametrize(
    ("decode", "data"),
    [
        (lambda data: Ternary.decode(data, (LONG,)), struct.pack("<BIf", 31, 2**32 - 1, 1)),
        (lambda data: Ternary.decode(data, (LONG,)), struct.pack("<BIf", 31, LONG, 1)),
        (decode_sparse, struct.pack("<BI", 31, 2**32 - 1)),
        (decode_sparse, struct.pack("<BI", 31, LONG)),
        (decode_signs, struct.pack("<fBI", 1, 31, 2**32 - 1)),
        (decode_signs, struct.pack("<fBI", 1, 31, LONG)),
        (lambda data: Dense.decode(data, LONG), bytes(8)),
        (synced.decode_chain, struct.pack("<II", 1, 2**32 - 1)),
    ],
)
def test_a_claim_without_the_bytes_costs_nothing(decode, data):
    _, peak, refusal = cost(decode, data)
    assert refusal
    assert peak < 100_000


def test_a_chain_of_nothing_but_heads_costs_what_its_bytes_do():
    data = b"".join(struct.pack("<II", number, 0) for number in range(1, 50_001))
    _, peak, refusal = cost(synced.decode_chain, data)
    assert refusal is None
    assert peak < 20 * len(data)
    seconds = time.process_time()
    synced.decode_chain(data)
    assert time.process_time() - seconds < 1  # about 2 microseconds an entry


def test_config_without_settings_is_refused_not_guessed():
    network = started("stc")
    message = network.send(0)[0]
    message.content["config"] = ConfigRecord({"server-round": 4, "sparsity-up": 7.0, "scope": "x"})
    before = snapshot(network.contexts[0])
    with pytest.raises(ValueError, match="sparsity-up = 7"):
        network.answer(message, network.draw())
    assert snapshot(network.contexts[0]) == before
