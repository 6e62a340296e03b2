"""Secure sums: the sum under masks is the sum, whoever is lost; what is sent says nothing else."""

import itertools
from collections import Counter

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from strategies.secure.messages import Stage, read_rows, threshold, write_rows
from strategies.secure.primitives import combine, public_key, split
from tests.support.compressed_network import (
    REPLY_HEAD_BYTES,
    SIZE,
    flatten,
    payload,
    replace_payload,
)
from tests.support.secure_network import SecureNetwork, identities, stages

pytestmark = pytest.mark.usefixtures("server_identity")


@st.composite
def cohorts(draw):
    """Return a number of clients, and those that are lost at each stage, at most n - t."""
    clients = draw(st.integers(2, 12))
    most = clients - threshold(clients)
    lost = draw(st.sets(st.integers(0, clients - 1), max_size=most))
    return clients, {client: draw(st.sampled_from(stages())) for client in sorted(lost)}


@settings(max_examples=12, deadline=None)
@given(cohorts(), st.integers(4, 16))
def test_masked_sum_is_the_sum_of_the_clients_that_are_left(made, bits):
    clients, lost = made
    network = SecureNetwork(clients, sparsity=0.3, bits=bits)
    for _ in range(3):
        changes = {client: network.random_change() for client in range(clients)}
        before = network.model
        by_stage = {stage: [c for c, at in lost.items() if at == stage] for stage in stages()}
        outcome = network.sum_round(changes, by_stage)
        assert outcome.model is not None, network.errors
        in_sum = [c for c in range(clients) if lost.get(c, Stage.UNMASK) == Stage.UNMASK]
        expected = network.model_after(before, in_sum)
        np.testing.assert_array_equal(flatten(network.model), expected)
    assert np.abs(flatten(network.model) - flatten(before)).max() > 0.01


def test_round_with_fewer_than_t_clients_changes_nothing_and_loses_no_update():
    network = SecureNetwork(6, sparsity=1.0, bits=16)
    changes = {client: network.random_change() for client in range(6)}
    network.sum_round(changes)
    for stage in stages():
        outcome = network.sum_round(changes, {stage: [0, 1]})
        assert outcome.model is None
        assert "5 of 6 clients are needed, 4 answered" in str(outcome.rejected[12])
    before = flatten(network.model)
    network.sum_round(dict.fromkeys(range(6), np.zeros(SIZE, np.float32)))
    # Rounds 1 and 5 trained all clients, round 4 trained four of them; the other two none.
    total = sum(network.memory(client).vectors["residual"] for client in range(6))
    assert np.abs(flatten(network.model) - before).max() > 0
    np.testing.assert_allclose(
        total, sum(changes.values()) * 2 + sum(changes[c] for c in range(2, 6)), atol=1e-4
    )


def masked_words(network, clients=(0, 1, 2, 3)):
    """Return the numbers that the clients sent in the last round, of 16 + 2 bits each."""
    words = []
    for client in clients:
        data = payload(network.replies[Stage.MASK][client])[REPLY_HEAD_BYTES:-8]
        bits = np.unpackbits(np.frombuffer(data, np.uint8))[: SIZE * 18].reshape(SIZE, 18)
        words.append(bits)
    return np.array(words)


def test_masked_numbers_are_uniform_and_differ_by_round():
    """Chi-square over the low and the high bits, for numbers that are the same without a mask."""
    network = SecureNetwork(4, sparsity=1.0, bits=16)
    same = dict.fromkeys(range(4), np.ones(SIZE, np.float32))
    rounds = []
    for _ in range(8):
        network.sum_round(same)
        rounds.append(masked_words(network))
    words = np.array(rounds)
    for part in (words[..., :6], words[..., -6:]):
        values = np.packbits(part, axis=-1).reshape(-1) >> 2
        counts = np.bincount(values, minlength=64)
        assert scipy.stats.chisquare(counts).pvalue > 1e-6
    for one, other in itertools.combinations(words, 2):
        assert abs((one == other).mean() - 0.5) < 0.05


@pytest.mark.parametrize("known", [2, 3])
def test_fewer_than_t_shares_say_nothing_of_a_secret(known):
    """With t - 1 shares, one more can make every secret: each is as likely as any other."""
    one, other = bytes(16), b"another's secret"
    counts = {secret: Counter() for secret in (one, other)}
    for secret, counter in counts.items():
        for _ in range(2000):
            shares = split(secret, 4, range(6))
            counter.update(shares[place][0] >> 4 for place in range(known))
    table = [[counter[value] for value in range(16)] for counter in counts.values()]
    assert scipy.stats.chi2_contingency(table).pvalue > 1e-6


@pytest.mark.parametrize("lost", [[], [3]])
def test_server_gets_one_kind_of_share_for_each_client(lost):
    """With both kinds, or one's own mask of a lost client, single numbers could be unmasked."""
    network = SecureNetwork(4, sparsity=1.0)
    network.sum_round({client: network.random_change() for client in range(4)}, {Stage.MASK: lost})
    replies = network.replies[Stage.UNMASK].values()
    shares = [read_rows(payload(reply), 16) for reply in replies]
    keys = {place: payload(reply)[:32] for place, reply in network.replies[Stage.ADVERTISE].items()}
    for place in range(4):
        secret = combine({by: rows[place] for by, rows in enumerate(shares[:3])})
        assert (public_key(secret) == keys[place]) == (place in lost)


def wrong_share(reply):
    rows = read_rows(payload(reply), 16)
    replace_payload(reply, write_rows({place: row[::-1] for place, row in rows.items()}))


def short(reply):
    replace_payload(reply, payload(reply)[:-1])


@pytest.mark.parametrize("lost", [[], [3]])
def test_wrong_share_is_noticed_and_changes_nothing(lost):
    network = SecureNetwork(4, sparsity=1.0, bits=8)
    changes = {client: network.random_change() for client in range(4)}
    network.sum_round(changes)
    network.spoil = {(Stage.UNMASK, 0): wrong_share}
    before = flatten(network.model)
    outcome = network.sum_round(changes, {Stage.MASK: lost})
    assert outcome.model is None
    assert "wrong" in str(outcome.rejected[10])
    np.testing.assert_array_equal(flatten(network.model), before)


@pytest.mark.parametrize("stage", stages())
def test_answer_of_another_length_is_rejected_with_its_node(stage):
    network = SecureNetwork(4, sparsity=1.0, bits=8)
    changes = {client: network.random_change() for client in range(4)}
    network.spoil = {(stage, 2): short}
    outcome = network.sum_round(changes)
    assert set(outcome.rejected) == {12}
    assert outcome.model is not None
    network.spoil = {}
    before = network.model
    network.sum_round(changes)
    np.testing.assert_array_equal(flatten(network.model), network.model_after(before, range(4)))


@pytest.mark.parametrize("signed", [False, True])
def test_formula_of_the_bits_up_is_what_is_sent_but_for_heads(tmp_path, signed):
    nodes = identities(tmp_path, 4) if signed else ()
    network = SecureNetwork(4, nodes, sparsity=1.0, bits=8, signed=signed)
    network.sum_round({client: network.random_change() for client in range(4)})
    sent = sum(len(payload(replies[0])) for replies in network.replies.values())
    padding = -(SIZE * 10) % 8
    assert network.outcome.formula_bits_up == 4 * (8 * (sent - REPLY_HEAD_BYTES) - padding)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_sum_over_100_clients_of_which_a_third_is_lost():
    network = SecureNetwork(100, sparsity=0.3)
    lost = {stage: range(8 * at, 8 * at + 8) for at, stage in enumerate(stages())}
    for _ in range(2):
        before = network.model
        changes = {client: network.random_change() for client in range(100)}
        network.sum_round(changes, lost)
        expected = network.model_after(before, range(24, 100))
        np.testing.assert_array_equal(flatten(network.model), expected)
    assert np.abs(flatten(network.model) - flatten(before)).max() > 0.001
