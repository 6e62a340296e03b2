"""No update is lost or counted twice when replies are lost or late and clients lose their state.

What clients trained is seen inside of the strategy's mod, what the server accepted where it decodes
it. From these follow, without the protocol's own sums, the global model's change, and the residual
that each client must have.
"""

from collections import defaultdict

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, RecordDict
from hypothesis import given, settings
from hypothesis import strategies as st

import strategies
import tasks
from fedavg_app.flower_internals import error_reply
from fedavg_app.server.preparation import resolve
from strategies.rounds.client_memory import MEMORY, ClientMemory
from strategies.rounds.flower_arrays import from_record, get_record
from strategies.rounds.messages import ARRAYS
from strategies.rounds.reply_errors import NormError
from strategies.rounds.values import ReplyBounds, RunSettings
from tasks.training.random_streams import numpy_generator
from tests.support.compressed_network import REPLY_HEAD_BYTES, payload, trained
from tests.support.compression_reference import decode_sparse
from tests.support.in_process import make_config, run_loop
from tests.support.local_grid import LocalGrid
from tests.support.replies import cohort

MOD = f"{__name__}:note_change"  # for the key "client-mods"
EXACT = 1e-5
INITIAL = ArrayRecord(tasks.load("mnist-logistic").initial_model(1).state_dict())


class ConservationCheck:
    """The sums of one run, which must have `MOD` in its "client-mods".

    What the server's strategy accepts is noted. Its clients keep a residual, and no momentum, which
    enters the residual as well.
    """

    # The check made last, for `note_change`.
    current = None

    def __init__(self, strategy):
        ConservationCheck.current = self
        self.strategy = strategy
        # By node, since it lost its state: the changes, and the accepted updates by the time of
        # its last training, and by now.
        self.trained, self.settled = defaultdict(float), defaultdict(float)
        self.accepted = defaultdict(float)
        self.round, self.steps = {}, 0.0
        self.num_late = 0
        self._read, self._step = strategy.read, strategy.step
        strategy.read, strategy.step = self._note_update, self._note_round

    def error_of_model(self, initial, final):
        """Return the largest error of an entry: the steps less the change and the residual."""
        residual = self.strategy.residual
        left = self.steps - (flat(final) - flat(initial))
        return np.abs(left if residual is None else left - residual).max()

    def error_of_clients(self, contexts):
        """Return the largest error of an entry of a client's residual."""
        errors = []
        for context in contexts:
            node, memory = context.node_id, ClientMemory.read(context.state)
            if memory.vectors:
                kept = memory.vectors["residual"]
                errors.append(self.trained[node] - self.settled[node] - kept)
        return max(np.abs(error).max() for error in errors)

    def _note_update(self, now, reply):
        (update,) = self._read(now, reply)
        self.num_late += reply.server_round < now.number
        self.round[reply.node] = update.to_dense().astype(np.float64)
        return (update,)

    def _note_round(self, now, aggregate):
        for node in aggregate.nodes:
            self.accepted[node] = self.accepted[node] + self.round[node]
        self.steps = self.steps + np.mean([self.round[node] for node in aggregate.nodes], axis=0)
        self.round = {}
        return self._step(now, aggregate)


def note_change(message, context, call_next):
    """Note what the training of this client changes; evaluation passes through."""
    if not message.metadata.message_type.startswith("train"):
        return call_next(message, context)
    check, node = ConservationCheck.current, context.node_id
    before = flat(get_record(message.content, ARRAYS, ArrayRecord))
    reply = call_next(message, context)
    if MEMORY not in context.state:  # it has lost its state, or is new
        for sums in (check.trained, check.settled, check.accepted):
            sums.pop(node, None)
    change = flat(get_record(reply.content, ARRAYS, ArrayRecord)) - before
    check.trained[node] = check.trained[node] + change
    check.settled[node] = check.accepted[node]
    return reply


def flat(arrays):
    """Return all entries of the model, in float64."""
    parts = [array.reshape(-1) for array in from_record(arrays).values()]
    return np.concatenate(parts).astype(np.float64)


class UnreliableGrid(LocalGrid):
    """A twentieth of clients lose their state before they train, a fifth of replies are lost."""

    def __init__(self, config):
        super().__init__(config.model_dump(by_alias=True), config.num_clients)
        self._rng = numpy_generator(config.seed, "disturbance")
        self.num_dropped = self.num_restarted = 0

    def push_messages(self, messages):
        ids = []
        for message in messages:
            training = message.metadata.message_type == "train"
            if training and self._rng.random() < 0.05:
                self.contexts[message.metadata.dst_node_id].state = RecordDict()
                self.num_restarted += 1
            ids += super().push_messages([message])
            if training and self._rng.random() < 0.2:
                self._replies[ids[-1]] = error_reply(message, "dropped")
                self.num_dropped += 1
        return ids


LATE = "max-staleness = 20, staleness = 0"  # late updates count in full
RANDOM = "{name = 'random', sparsity = 0.1}"
STOCHASTIC = f"uplink = {RANDOM}, downlink = {RANDOM}"


def checked_run(strategy, arguments, **further):
    """Run an unreliable training; check the model and the residuals; return the check."""
    keys = {
        "strategy": strategy, "strategy_args": arguments, "local_steps": 1, "batch_size": 20,
        "learning_rate": 0.04, "target": "none", "partition": "classes", "evaluate_every": 15,
        "client_mods": MOD,
    }  # fmt: skip
    config = make_config(**keys, **further)
    components = resolve(config)
    grid, check = UnreliableGrid(config), ConservationCheck(components[2].strategy)
    result = run_loop(grid, config, components)
    assert grid.num_dropped > 5
    assert grid.num_restarted > 0
    assert check.error_of_model(INITIAL, result.model) < EXACT
    assert check.error_of_clients(grid.contexts.values()) < EXACT
    return check


@pytest.mark.parametrize(
    ("strategy", "arguments"),
    [("stc", ""), ("topk", ""), ("compressed", STOCHASTIC)],
)
def test_nothing_is_lost_or_counted_twice(strategy, arguments):
    checked_run(strategy, arguments, num_clients=12, fraction_train=0.5, num_server_rounds=15)


@pytest.mark.parametrize("strategy", ["stc", "topk"])
def test_nothing_is_lost_or_counted_twice_where_late_replies_count(strategy):
    check = checked_run(
        strategy, LATE, num_clients=30, fraction_train=0.2, num_server_rounds=30,
        links="phones", round_timeout=30, over_selection=2.0,
    )  # fmt: skip
    assert check.num_late > 50


CLIENTS, ENTRIES, MIN_REPLIES, MAX_LATE, MAX_NORM = 3, 4, 2, 3, 100.0
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
    used or refused for their norm; not what an end of the protocol keeps. All numbers are whole.
    """

    def __init__(self):
        self.owed = {client: np.zeros(ENTRIES) for client in range(CLIENTS)}
        self.forgotten = dict.fromkeys(range(CLIENTS), 0)
        self.steps = np.zeros(ENTRIES)

    def forget(self, client):
        self.owed[client] = np.zeros(ENTRIES)
        self.forgotten[client] += 1

    def send(self, client, data):
        """Return an entry for a reply: its client, what it holds, all that the client then owed."""
        update = np.array(decode_sparse(data[REPLY_HEAD_BYTES:], [ENTRIES]))
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
@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.lists(EVENTS, min_size=CLIENTS, max_size=CLIENTS), min_size=3, max_size=9),
    st.sampled_from([1.0, 0.25]),
)
def test_nothing_is_lost_or_counted_twice_in_any_order(rounds, sparsity_down):
    """Of lost, late, refused, diverged and too few replies, lost messages and lost states."""
    arguments = {
        "sparsity_up": 0.25, "sparsity_down": sparsity_down, "scope": "model",
        "max_staleness": MAX_LATE, "staleness": 0.0,
    }  # fmt: skip
    bounds = ReplyBounds(max_update_norm=MAX_NORM)
    run = RunSettings(num_clients=CLIENTS, min_replies=MIN_REPLIES, bounds=bounds)
    runner, mod = strategies.build("topk", arguments, run), strategies.client_mod("topk", arguments)
    contexts = [Context(1, 10 + client, {}, RecordDict(), {}) for client in range(CLIENTS)]
    model, ledger = ArrayRecord({"w": Array(np.zeros(ENTRIES, np.float32))}), Ledger()
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
                after = flat(message.content[ARRAYS]) + change
                if np.isfinite(change).all():
                    ledger.owed[client] = ledger.owed[client] + change
                return trained(message, ArrayRecord({"w": Array(after.astype(np.float32))}))

            reply = mod(sent[asked.index(client)], contexts[client], fit)
            if payload(reply)[1] == 0:  # with an update
                residual = ClientMemory.read(contexts[client].state).vectors["residual"]
                np.testing.assert_allclose(residual, ledger.owed[client], atol=1e-3)
            if arrives != "lost":
                entry = ledger.send(client, payload(reply)) if payload(reply)[1] == 0 else None
                due[10 + client] = number + arrives, reply, entry
        arrived = {node: due.pop(node) for node in list(due) if due[node][0] == number}
        outcome = runner.finish_round([reply for _, reply, _ in arrived.values()])
        model = outcome.model or model
        entries = {node: entry for node, (_, _, entry) in arrived.items() if entry is not None}
        ledger.end_round(entries, outcome.rejected)
        kept = runner.strategy.residual
        np.testing.assert_allclose(
            flat(model) + (0 if kept is None else kept), ledger.steps, atol=1e-3
        )
