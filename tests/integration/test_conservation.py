"""No update is lost or counted twice when replies are lost or late and clients lose their state.

What clients trained is seen inside of the strategy's mod, what the server accepted where it decodes
it. From these follow, without the protocol's own sums, the global model's change, and the residual
that each client must have.
"""

from collections import defaultdict

import numpy as np
import pytest
from flwr.app import ArrayRecord, RecordDict

import tasks
from fedavg_app.flower_internals import error_reply
from fedavg_app.server.preparation import resolve
from strategies.client_memory import MEMORY, ClientMemory
from strategies.flower_arrays import from_record, get_record
from strategies.messages import ARRAYS
from tasks.training.random_streams import numpy_generator
from tests.support.in_process import make_config, run_loop
from tests.support.local_grid import LocalGrid

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
        "learning_rate": 0.04, "target_accuracy": 0.0, "partition": "classes", "evaluate_every": 15,
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
