"""Compressed strategies with the real training loop and ClientApp on real data."""

import numpy as np
import pytest
from flwr.app import ArrayRecord, RecordDict

import tasks
from fedavg_app.server.run_components import resolve
from strategies.compression.float32 import Float32
from tests.support.client_mods import FLOWERS, HERE, calls
from tests.support.conservation import MOD, ConservationCheck
from tests.support.in_process import make_config, model_arrays, run_loop, same_model, train
from tests.support.local_grid import LocalGrid
from tests.support.unreliable_grid import UnreliableGrid

SIZE = 7850
NAMES = ["stc", "topk", "signsgd", "qsgd", "eden", "ef21", "dgc"]
# Those that the quick tests train with; the slow ones train with all.
QUICK = ["stc", "signsgd", "ef21"]


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in NAMES],
)
def test_compressed_run_learns_and_counts_what_it_sends(name):
    step = "step-size = 0.002" if name == "signsgd" else ""
    _, result = train(
        strategy=name, strategy_args=step, partition="iid",
        num_server_rounds=60, local_steps=1, evaluate_every=60,
    )  # fmt: skip
    assert result.history[-1].accuracy > 0.6  # 0.1 is chance
    sums = dict.fromkeys(result.history[0].total, 0)
    for metrics in result.history:
        for key in sums:
            sums[key] += getattr(metrics, key)
        assert metrics.total == pytest.approx(sums)
    dense_bits = 32 * SIZE * 5 * 60
    assert result.history[-1].total["theory_bits_up"] < dense_bits / 9
    assert 8 * result.history[-1].total["bytes_up"] < dense_bits / 9


def test_bytes_of_a_reply_are_those_of_its_payload_and_metrics():
    _, result = train(strategy="stc", num_server_rounds=3, local_steps=1)
    # k = ceil(7840 / 400) + 1 = 21 entries; 6 head, 5 for b and k, 2 magnitudes, 2 bits at least
    # and 12 at most an entry (b* = 8: 8 + 1 + sign, and 31 ones at most in all).
    least = 5 * (6 + 5 + 8 + (21 * 10) // 8)
    most = 5 * (6 + 5 + 8 + (21 * 10 + 31) // 8 + 1)
    named = 5 * (len("payload") + len("num-examples") + 8 + len("train-loss") + 8)
    for metrics in result.history[1:]:
        assert least <= metrics.bytes_up - named <= most


@pytest.mark.parametrize("name", NAMES)
def test_flowers_mods_work_inside_the_strategys_mod(name):
    keys = {"strategy": name, "local_steps": 1, "num_server_rounds": 3}
    _, plain = train(**keys)
    sizes = f"{FLOWERS}:arrays_size_mod,{FLOWERS}:message_size_mod"
    calls.clear()
    _, sized = train(**keys, client_mods=f"{sizes},{HERE}:inner")
    assert same_model(plain, sized)
    # They ran, for 5 clients in 3 rounds, and saw a plain model go in and come out.
    assert calls == [("train", "arrays", "config"), ("metrics", "arrays")] * 15


class StateLosingGrid(LocalGrid):
    """All clients lose their state before round 60."""

    def push_messages(self, messages):
        messages = list(messages)
        if any(m.content["config"].get("server-round") == 60 for m in messages if m.content):
            for context in self.contexts.values():
                context.state = RecordDict()
        return super().push_messages(messages)


def test_run_survives_that_all_clients_lose_their_state():
    """One client a round: more rounds in a row than end a run go into asking for the model."""
    _, result = train(
        grid_type=StateLosingGrid, strategy="stc", num_clients=10, partition="iid",
        fraction_train=0.0, num_server_rounds=80, local_steps=1, evaluate_every=80,
    )  # fmt: skip
    resyncing = [metrics.round for metrics in result.history if metrics.rejected]
    assert resyncing[:4] == [60, 61, 62, 63]
    assert len(result.history) == 81


def train_unreliably(name, arguments, dropped, restarted):
    """Run a strategy on an unreliable grid; return the grid, the result and the check."""
    config = make_config(
        strategy=name, strategy_args=arguments, local_steps=1, batch_size=20,
        learning_rate=0.004 if name == "dgc" else 0.04, num_server_rounds=150, evaluate_every=150,
        target_accuracy=0.0, partition="classes", num_clients=100, fraction_train=0.1,
        client_mods=MOD,
    )  # fmt: skip
    components = resolve(config)
    grid, check = UnreliableGrid(config, dropped, restarted), ConservationCheck(components.strategy)
    return grid, run_loop(grid, config, components), check


@pytest.mark.slow
@pytest.mark.parametrize("name", [*NAMES, "compressed"])
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
    sends_updates = not isinstance(check.strategy.downlink, Float32)
    assert (sum("full model next round" in reason for reason in reasons) > 10) == sends_updates
    assert result.history[-1].accuracy > reliable.history[-1].accuracy - 0.05
    if name == "signsgd":  # its model moves by the votes' signs times the step
        return
    initial = ArrayRecord(tasks.load("mnist-logistic").initial_model(1).state_dict())
    start = [array.numpy() for array in initial.values()]
    for ran, trained, sums in runs:
        changes = [a - b for a, b in zip(model_arrays(trained), start, strict=True)]
        assert max(np.abs(change).max() for change in changes) > 0.01
        assert sums.error_of_model(initial, trained.model) < 1e-4
        if name not in ("qsgd", "eden", "dgc"):  # see error_of_clients
            assert sums.error_of_clients(ran.contexts.values()) < 1e-4
