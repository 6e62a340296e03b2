"""A million damaged and forged payloads: each decodes to a valid result or is rejected.

Every decoder may raise `DecodeError` and nothing else, not even a warning; what it accepts keeps
the format's promises. Then the same through the real ends: the server's `validate` and the client's
mod. tests/unit/strategies/compression/test_hostile_bytes.py does this with a few thousand.
"""

import copy
import pickle
import struct
import time
import warnings

import numpy as np
import pytest
from flwr.app import ConfigRecord, RecordDict

from strategies.compression.decoded_update import DecodeError
from strategies.compression.float32 import Float32
from strategies.compression.hostile_bytes import check_update, cost, decode_or_reject, mutants
from strategies.compression.sign import Sign
from strategies.compression.sparse import Sparse
from strategies.compression.sync_protocol import (
    Head,
    Payload,
    ReplyStatus,
    Version,
    decode_updates,
)
from strategies.compression.ternary import Ternary
from strategies.reply_validation import ReplyError
from tests.support.compressed_network import (
    REPLY_HEAD_BYTES,
    SIZE,
    Network,
    flatten,
    payload,
    state_bytes,
)
from tests.support.compression_reference import generator, layout_of
from tests.support.mutations import decoder_cases, position_bits_bound
from tests.support.replies import reply_with

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("server_identity")]

# Payloads per decoder; they sum to more than a million.
COUNTS = {
    "ternary": 260_000,
    "sparse": 220_000,
    "sign": 200_000,
    "float32": 60_000,
    "updates": 140_000,
    "reply": 70_000,
    "head": 70_000,
}
SERVER_REPLIES = 4_000  # per strategy
CLIENT_MESSAGES = 2_000

STRATEGIES = {
    "stc": {"sparsity_up": 0.1, "sparsity_down": 0.1},
    "topk": {"sparsity_up": 0.1, "sparsity_down": 0.1},
    "signsgd": {},
}


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_million_damaged_payloads_decode_to_valid_results_or_are_rejected(record_property):
    started = time.monotonic()
    rng = generator(12)
    cases = list(decoder_cases())
    shares = {name: COUNTS[name] // sum(case[0] == name for case in cases) for name in COUNTS}
    total = dict.fromkeys(COUNTS, 0)
    decoded = dict.fromkeys(COUNTS, 0)
    with warnings.catch_warnings(), np.errstate(all="raise"):
        warnings.simplefilter("error")
        for name, decode, check, payloads, fields in cases:
            for data in payloads:
                check(decode(data), data)
            for data in mutants(rng, payloads, shares[name], fields):
                total[name] += 1
                try:
                    decoded[name] += decode_or_reject(decode, check, data)
                except Exception as error:
                    pytest.fail(f"{name}: {error!r} from {data.hex()}")
    seconds = round(time.monotonic() - started, 1)
    record_property("seconds", seconds)
    print(f"{sum(total.values()):,} payloads in {seconds} s; decoded: {decoded} of {total}")
    assert sum(total.values()) >= 1_000_000
    # Neither all damaged beyond use nor all valid: the checks of what was decoded had work.
    for name in COUNTS:
        assert 0.01 < decoded[name] / total[name] < 0.9, (name, decoded, total)


def network_after_rounds(name, rounds=3):
    """Return a network whose clients have trained for some rounds."""
    network = Network(name, clients=3, **STRATEGIES[name])
    for _ in range(rounds):
        network.run_round({client: network.random_change() for client in range(3)})
    return network


@pytest.mark.parametrize("name", STRATEGIES)
def test_server_accepts_or_rejects_every_reply_and_keeps_its_state(name):
    network = network_after_rounds(name)
    rng = generator(13)
    messages = network.configure(0, 1)
    valid = [network.train(message, network.random_change()) for message in messages]
    at = REPLY_HEAD_BYTES + (4 if name == "signsgd" else 0)
    fields = [(0, "B"), (1, "B"), (2, "I"), (6, "I"), (at, "B"), (at + 1, "I")]
    before = pickle.dumps(network.strategy)
    accepted = 0
    for data in mutants(rng, [payload(reply) for reply in valid], SERVER_REPLIES, fields):
        content = RecordDict(
            {
                "update": ConfigRecord({"payload": data, "num-examples": 1}),
            }
        )
        try:
            network.strategy.validate(reply_with(12, content))
        except ReplyError:
            continue
        except Exception as error:
            pytest.fail(f"{error!r} from {data.hex()}")
        accepted += 1
    assert 0 < accepted < SERVER_REPLIES
    assert pickle.dumps(network.strategy) == before

    # The round goes on.
    bad = reply_with(12, RecordDict({"update": ConfigRecord({"payload": b"\xff" * 40})}))
    network.aggregate([valid[0], bad, valid[1]])
    assert list(network.outcome.rejected) == [12]
    assert all(np.isfinite(array.numpy()).all() for array in network.model.values())
    network.run_round({0: network.random_change()})
    assert not network.outcome.rejected


@pytest.mark.parametrize("name", STRATEGIES)
def test_client_answers_or_raises_and_keeps_its_state_unless_it_trained(name):
    network = network_after_rounds(name)
    rng = generator(14)
    for _ in range(3):  # without client 0
        network.run_round({client: network.random_change() for client in (1, 2)})
    change = network.random_change()
    context, config = network.contexts[0], network.configure(0)[0].content["config"]
    head, updates = config["head"], config["updates"]
    assert len(decode_updates(updates)) == 4  # these three, and that of its last round
    before = state_bytes(context)
    outcomes = {"trained": 0, "needs the model": 0, "diverged": 0, "raised": 0}
    first = decode_updates(updates)[0]
    in_update = 8 + (4 if name == "signsgd" else 0)
    fields = [(0, "I"), (4, "I"), (in_update, "B"), (in_update + 1, "I")]
    lists = [updates, first.encode(), b""]
    heads = mutants(
        rng, [head], CLIENT_MESSAGES, [(0, "B"), (1, "I"), (5, "I"), (9, "I"), (13, "I")]
    )
    forged = mutants(rng, lists, CLIENT_MESSAGES, fields)
    for turn, (new_head, new_updates) in enumerate(zip(heads, forged, strict=True)):
        if turn % 4 == 0:
            new_updates = updates
        elif turn % 4 > 1:  # a fingerprint that fits, so that the updates themselves are read
            new_head = fitting_head(network, context, new_updates) or new_head
        message = network.configure(0)[0]
        entries = {**config, "head": new_head, "updates": new_updates}
        message.content["config"] = ConfigRecord(entries)
        network.contexts[0] = copy.deepcopy(context)
        try:
            with np.errstate(all="ignore"):  # an update may make the sum overflow; it is noticed
                # Now and then training itself diverges, after all that was sent has been read.
                reply = network.train(message, change if turn % 5 else change * np.nan)
        except ValueError:  # a DecodeError is one
            outcomes["raised"] += 1
            assert state_bytes(network.contexts[0]) == before
            continue
        except Exception as error:
            pytest.fail(f"{error!r} from head {new_head.hex()}, updates {new_updates.hex()}")
        answer = Payload.decode(payload(reply))
        status = answer.status
        assert answer.server_round == config["server-round"]
        if status != ReplyStatus.UPDATE:
            needs_model = status == ReplyStatus.NEEDS_MODEL
            outcomes["needs the model" if needs_model else "diverged"] += 1
            assert state_bytes(network.contexts[0]) == before
            continue
        outcomes["trained"] += 1
        check_update(network.strategy.codec.uplink.decode(answer.update, network.layout), SIZE)
        model = network.contexts[0].state["synced-model"]
        assert all(np.isfinite(array.numpy()).all() for array in model.values())
    assert min(outcomes.values()) > CLIENT_MESSAGES // 100, outcomes


def fitting_head(network, context, updates):
    """Return the head of a server that would have sent these updates; None where none would."""
    codec = network.strategy.codec
    number = context.state["synced-version"]["number"]
    vector = flatten(context.state["synced-model"])
    try:
        for update in decode_updates(updates):
            if update.number > number:
                number = update.number
                with np.errstate(all="ignore"):
                    vector += codec.downlink.decode(update.data, network.layout).to_dense()
    except DecodeError:
        return None
    return Head(codec.digest, 0, Version.of(number, vector)).encode()


ENTRIES = 1_000_000
MODEL_BYTES = 4 * ENTRIES
LAYOUT = layout_of(ENTRIES)


def decode_ternary(data):
    return Ternary(1.0).decode(data, LAYOUT)


def decode_sparse(data):
    return Sparse(1.0).decode(data, LAYOUT)


def decode_sign(data):
    return Sign().decode(data, LAYOUT)


def decode_float32(data):
    return Float32().decode(data, LAYOUT)


def bodies(bits):
    """Return contents for so many bits: what makes positions shortest, longest, and neither."""
    length = bits // 8
    return [b"", bytes(length), b"\xff" * length, b"\xaa" * length, bytes(length) + b"\xff" * 9]


def extreme_claims():
    """Yield (what, decoder, payload): heads that claim much, with and without the bytes for it."""
    counts = (0, 1, ENTRIES // 400, ENTRIES // 2, ENTRIES - 1, ENTRIES, ENTRIES + 1, 2**31)
    for b in (0, 1, 8, 19, 31, 255):
        for count in (*counts, 2**32 - 1):
            possible = min(count, ENTRIES)
            bits = position_bits_bound(count, b, ENTRIES)
            for body in bodies(bits + possible):
                yield "ternary", decode_ternary, struct.pack("<BIf", b, count, 1) + body
            for body in bodies(bits):
                values = np.ones(possible, "<f4").tobytes()
                yield "sparse", decode_sparse, struct.pack("<BI", b, count) + values + body
            for body in bodies(bits + ENTRIES - possible):
                yield "sign", decode_sign, struct.pack("<fBI", 1, b, count) + body
    long = bytes(4 * MODEL_BYTES)
    yield "ternary", decode_ternary, struct.pack("<BIf", 9, 1, 1) + long
    yield "sparse", decode_sparse, struct.pack("<BIf", 9, 1, 1) + long
    yield "sign", decode_sign, struct.pack("<fBI", 1, 9, 1) + long
    for length in (0, MODEL_BYTES - 1, MODEL_BYTES + 1):
        yield "float32", decode_float32, bytes(length)
    for length in (2**31, 2**32 - 1, MODEL_BYTES):
        head = struct.pack("<II", 1, length)
        yield "updates", decode_updates, head
        yield "updates", decode_updates, head + bytes(MODEL_BYTES - 1)
    yield "reply", Payload.decode, Payload(0, 0, 2**32 - 1, bytes(MODEL_BYTES)).encode()
    yield "head", Head.decode, bytes(MODEL_BYTES)


def test_no_claimed_count_costs_more_than_the_size_of_the_model_allows(record_property):
    slowest, most = 0.0, 0
    for name, decode, data in extreme_claims():
        seconds, peak, _ = cost(decode, data)
        head = data[:13].hex()
        assert seconds < 1, f"{name}: {seconds:.2f} s for {len(data)} bytes from {head}"
        # A valid payload with every entry (b = 0, k = n) takes 13 times the model's bytes.
        assert peak < 20 * MODEL_BYTES, f"{name}: {peak} bytes for {len(data)} from {head}"
        slowest, most = max(slowest, seconds), max(most, peak)
    record_property("slowest", round(slowest, 3))
    record_property("most-memory-in-models", round(most / MODEL_BYTES, 1))
