"""No update is lost or counted twice when replies are lost and clients lose their state."""

import numpy as np
import pytest
from flwr.app import ArrayRecord

import tasks
from fedavg_app.server.run_components import resolve
from strategies.compression.error_feedback import Residual
from strategies.compression.float32 import Float32
from strategies.compression.update_sum import EstimateSum
from tests.support.conservation import MOD, ConservationCheck
from tests.support.in_process import make_config, model_arrays, run_loop
from tests.support.unreliable_grid import UnreliableGrid

SMALL = {"num_clients": 12, "fraction_train": 0.5, "num_server_rounds": 15, "evaluate_every": 15}
EXACT = 1e-5
INITIAL = ArrayRecord(tasks.load("mnist-logistic").initial_model(1).state_dict())


def train_unreliably(name, arguments="", dropped=0.2, restarted=0.05, **changes):
    """Run a strategy on an unreliable grid; return the grid, the result and the check."""
    values = {
        "strategy": name, "strategy_args": arguments, "local_steps": 1, "batch_size": 20,
        "learning_rate": 0.004 if name == "dgc" else 0.04, "num_server_rounds": 150,
        "evaluate_every": 150, "target_accuracy": 0.0, "partition": "classes", "num_clients": 100,
        "fraction_train": 0.1, "client_mods": MOD,
    }  # fmt: skip
    config = make_config(**{**values, **changes})
    components = resolve(config)
    grid, check = UnreliableGrid(config, dropped, restarted), ConservationCheck(components.strategy)
    return grid, run_loop(grid, config, components), check


def errors(strategy):
    """Return the largest errors of the model and of the clients in a short run."""
    grid, result, check = train_unreliably(strategy, **SMALL)
    assert grid.num_dropped > 5
    assert grid.num_restarted > 0
    model = check.error_of_model(INITIAL, result.model)
    return model, check.error_of_clients(grid.contexts.values())


@pytest.mark.parametrize("strategy", ["stc", "topk", "ef21"])
def test_nothing_is_lost_or_counted_twice(strategy):
    assert max(errors(strategy)) < EXACT


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


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "stc",
        "ef21",
        *(
            pytest.param(name, marks=pytest.mark.long)
            for name in ("topk", "signsgd", "qsgd", "eden", "dgc", "compressed")
        ),
    ],
)
def test_lost_replies_and_lost_states_cost_little_and_no_accepted_update_is_lost(name):
    """A fifth of the replies are dropped, and a twentieth of the participants lose their state.

    What the clients' updates amounted to sums to the change of the global model plus the server's
    residual, where the server has one; what a client trained, to what was accepted of it plus its
    own residual, where it has one.
    """
    arguments = {
        "signsgd": "step-size = 0.002",
        "compressed": "uplink = 'ternary', downlink = 'ternary', feedback = 'ef21'",
    }.get(name, "")
    runs = [train_unreliably(name, arguments, *faults) for faults in ((0.0, 0.0), (0.2, 0.05))]
    (_, reliable, _), (grid, result, check) = runs
    reasons = [reason for metrics in result.history for reason in metrics.rejected.values()]
    assert grid.num_dropped > 200
    assert grid.num_restarted > 40
    sends_updates = not isinstance(check.strategy.codec.downlink, Float32)
    assert (sum("full model next round" in reason for reason in reasons) > 10) == sends_updates
    assert result.history[-1].accuracy > reliable.history[-1].accuracy - 0.05
    if name == "signsgd":  # its model moves by the votes' signs times the step
        return
    start = [array.numpy() for array in INITIAL.values()]
    for ran, trained, sums in runs:
        changes = [a - b for a, b in zip(model_arrays(trained), start, strict=True)]
        assert max(np.abs(change).max() for change in changes) > 0.01
        assert sums.error_of_model(INITIAL, trained.model) < 1e-4
        if name not in ("qsgd", "eden", "dgc"):  # see error_of_clients
            assert sums.error_of_clients(ran.contexts.values()) < 1e-4
