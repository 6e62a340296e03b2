"""No update is lost or counted twice when replies are lost or late and clients lose their state.

A ledger adds up what clients train and what the server uses, without the protocol's own sums; from
these follow the global model's change, and the residual that each client must have.
"""

import re

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, RecordDict
from hypothesis import given, settings
from hypothesis import strategies as st

import strategies
from strategies.rounds.client_memory import ClientMemory
from strategies.rounds.messages import ARRAYS
from strategies.rounds.reply_errors import NormError
from strategies.rounds.values import ReplyBounds, RunSettings
from tests.support.compressed_network import REPLY_HEAD_BYTES, flatten, payload, trained
from tests.support.compression_reference import decode_sparse, decode_ternary
from tests.support.replies import cohort

CLIENTS, ENTRIES, MIN_REPLIES, MAX_LATE, MAX_NORM = 3, 8, 2, 3, 100.0
FORMS = {"sparse": decode_sparse, "ternary": decode_ternary}
# Of a client in a round: whether it forgets, what its training changes, and after how many rounds
# its reply arrives ("lost": never; "unsent": it does not get the message; "absent": is not asked).
EVENTS = st.tuples(
    st.sampled_from(["remembers"] * 4 + ["forgets"]),
    st.sampled_from(["short"] * 4 + ["long", "diverges"]),
    st.sampled_from([0, 0, 0, 1, 2, 5, "lost", "unsent", "absent"]),
)


class Ledger:
    """What each client has trained and neither the server has counted nor anyone dropped.

    It knows the changes that clients train, the bytes that they send, and which replies the server
    used or refused for their norm; not what an end of the protocol keeps.
    """

    def __init__(self, form):
        self.form = form
        self.owed = {client: np.zeros(ENTRIES) for client in range(CLIENTS)}
        self.forgotten = dict.fromkeys(range(CLIENTS), 0)
        self.steps = np.zeros(ENTRIES)

    def forget(self, client):
        self.owed[client] = np.zeros(ENTRIES)
        self.forgotten[client] += 1

    def send(self, client, data):
        """Return an entry for a reply: its client, what it holds, all that the client then owed."""
        update = np.array(self.form(data[REPLY_HEAD_BYTES:], [ENTRIES]))
        return client, update, self.owed[client].copy(), self.forgotten[client]

    def end_round(self, entries, rejected):
        """Note the round's replies, by node, and the reasons of those that were not used."""
        used = [entry for node, entry in entries.items() if node not in rejected]
        self.steps += np.mean([update for _, update, *_ in used], axis=0) if used else 0
        for node, (client, update, owed, forgotten) in entries.items():
            if forgotten == self.forgotten[client]:
                if node not in rejected:
                    self.owed[client] -= update
                elif isinstance(rejected[node], NormError):
                    self.owed[client] -= owed


@pytest.mark.usefixtures("server_identity")
@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.lists(EVENTS, min_size=CLIENTS, max_size=CLIENTS), min_size=3, max_size=9),
    st.sampled_from(["sparse", "ternary"]),
    st.sampled_from([1.0, 0.25]),
)
def test_nothing_is_lost_or_counted_twice_in_any_order(rounds, form, sparsity_down):
    """Of lost, late, refused, diverged and too few replies, lost messages and lost states."""
    arguments = {
        "uplink": {"name": form, "sparsity": 0.25, "scope": "model"},
        "downlink": {"name": form, "sparsity": sparsity_down, "scope": "model"},
        "max_staleness": MAX_LATE, "staleness": 0.0,
    }  # fmt: skip
    bounds = ReplyBounds(max_update_norm=MAX_NORM)
    run = RunSettings(num_clients=CLIENTS, min_replies=MIN_REPLIES, bounds=bounds)
    runner = strategies.build("compressed", arguments, run)
    mod = strategies.client_mod("compressed", arguments)
    contexts = [Context(1, 10 + client, {}, RecordDict(), {}) for client in range(CLIENTS)]
    model, ledger = ArrayRecord({"w": Array(np.zeros(ENTRIES, np.float32))}), Ledger(FORMS[form])
    due = {}  # by node, the round in which its reply arrives, the reply, the ledger's entry

    for number, events in enumerate(rounds, 1):
        asked = [c for c, event in enumerate(events) if 10 + c not in due and event[2] != "absent"]
        grid = cohort(*(10 + client for client in asked))
        sent = runner.configure_train(number, model, ConfigRecord(), grid)
        for client, (memory, training, arrives) in enumerate(events):
            if memory == "forgets":
                contexts[client].state = RecordDict()
                ledger.forget(client)
            if client not in asked or arrives == "unsent":
                continue
            change = np.random.default_rng([number, client]).integers(-3, 4, ENTRIES).astype(float)
            change[number % ENTRIES] += {"short": 0, "long": 1000, "diverges": np.nan}[training]

            def fit(message, _, client=client, change=change):
                after = flatten(message.content[ARRAYS]) + change
                if np.isfinite(change).all():
                    ledger.owed[client] = ledger.owed[client] + change
                return trained(message, ArrayRecord({"w": Array(after.astype(np.float32))}))

            reply = mod(sent[asked.index(client)], contexts[client], fit)
            if payload(reply)[1] == 0:  # with an update
                residual = ClientMemory.read(contexts[client].state).vectors["residual"]
                np.testing.assert_allclose(residual, ledger.owed[client], atol=1e-2)
            if arrives != "lost":
                entry = ledger.send(client, payload(reply)) if payload(reply)[1] == 0 else None
                due[10 + client] = number + arrives, reply, entry
        arrived = {node: due.pop(node) for node in list(due) if due[node][0] == number}
        outcome = runner.finish_round([reply for _, reply, _ in arrived.values()])
        model = outcome.model or model
        entries = {node: entry for node, (_, _, entry) in arrived.items() if entry is not None}
        for node in entries.keys() & outcome.rejected.keys():
            assert re.search("norm|too few|max-staleness is 3", str(outcome.rejected[node]))
        ledger.end_round(entries, outcome.rejected)
        kept = runner.strategy.residual
        np.testing.assert_allclose(
            flatten(model) + (0 if kept is None else kept), ledger.steps, atol=1e-2
        )
