"""No update is lost or counted twice when replies are lost and clients lose their state."""

import pytest
from flwr.app import ArrayRecord, RecordDict

import tasks
from fedavg_app.flower_internals import error_reply
from fedavg_app.server.run_components import resolve
from strategies.compression.error_feedback import Residual
from strategies.compression.update_sum import EstimateSum
from tasks.training.random_streams import numpy_generator
from tests.support.conservation import MOD, ConservationCheck
from tests.support.in_process import make_config, run_loop
from tests.support.local_grid import LocalGrid

EXACT = 1e-5
INITIAL = ArrayRecord(tasks.load("mnist-logistic").initial_model(1).state_dict())


class UnreliableGrid(LocalGrid):
    """A twentieth of the clients lose their state before they train, a fifth of replies are lost.

    Attributes:
        num_dropped: How many replies were lost so far.
        num_restarted: How many states were lost so far.
    """

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


def errors(strategy, arguments=""):
    """Run a strategy on an unreliable grid; return the largest errors of model and clients."""
    config = make_config(
        strategy=strategy, strategy_args=arguments, local_steps=1, batch_size=20,
        learning_rate=0.04, target_accuracy=0.0, partition="classes", num_clients=12,
        fraction_train=0.5, num_server_rounds=15, evaluate_every=15, client_mods=MOD,
    )  # fmt: skip
    components = resolve(config)
    grid, check = UnreliableGrid(config), ConservationCheck(components.strategy)
    result = run_loop(grid, config, components)
    assert grid.num_dropped > 5
    assert grid.num_restarted > 0
    model = check.error_of_model(INITIAL, result.model)
    return model, check.error_of_clients(grid.contexts.values())


COMBINED = "uplink = 'ternary', downlink = 'ternary', feedback = 'ef21'"


@pytest.mark.parametrize(
    ("strategy", "arguments"), [("stc", ""), ("topk", ""), ("ef21", ""), ("compressed", COMBINED)]
)
def test_nothing_is_lost_or_counted_twice(strategy, arguments):
    assert max(errors(strategy, arguments)) < EXACT


def test_update_that_stays_in_the_residual_is_seen(monkeypatch):
    monkeypatch.setattr(Residual, "accepted", lambda self, memory, sent: memory)
    model, clients = errors("topk")
    assert model < EXACT < clients


def test_update_that_the_server_counts_twice_is_seen(monkeypatch):
    add = EstimateSum.add

    def twice(self, node, update, weight, *, anew):
        add(self, node, update, weight, anew=anew)
        add(self, node, update, weight, anew=False)

    monkeypatch.setattr(EstimateSum, "add", twice)
    assert min(errors("ef21")) > EXACT
