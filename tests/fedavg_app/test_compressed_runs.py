"""Compressed strategies through the real round loop and the real ClientApp."""

import numpy as np
import pytest
from flwr.app import RecordDict

from benchmarks.stc_disturbed import compare
from tests.fedavg_app import test_mods, test_rounds
from tests.fedavg_app.local_grid import LocalGrid
from tests.fedavg_app.test_rounds import model, same, train

HERE = "tests.fedavg_app.test_mods"
SIZE = 7850
NAMES = ["stc", "topk", "signsgd"]


@pytest.mark.parametrize("name", NAMES)
def test_compressed_runs_learn_and_count_what_they_send(name):
    step = "step-size = 0.002" if name == "signsgd" else ""
    _, outcome = train(
        strategy=name, strategy_args=step, partition="iid",
        num_server_rounds=60, local_steps=1, evaluate_every=60,
    )  # fmt: skip
    assert outcome.records[-1].accuracy > 0.6  # 0.1 is chance
    sums = dict.fromkeys(outcome.records[0].total, 0)
    for record in outcome.records:
        for key in sums:
            sums[key] += getattr(record, key)
        assert record.total == pytest.approx(sums)
    dense_bits = 32 * SIZE * 5 * 60
    assert outcome.records[-1].total["theory_bits_up"] < dense_bits / 9
    assert 8 * outcome.records[-1].total["bytes_up"] < dense_bits / 9


def test_the_bytes_of_a_reply_are_its_payload_and_its_metrics():
    _, outcome = train(strategy="stc", num_server_rounds=3, local_steps=1)
    # k = ceil(7840 / 400) + 1 = 21 entries; 6 head, 5 for b and k, 2 magnitudes, 2 bits at least
    # and 12 at most an entry (b* = 8: 8 + 1 + sign, and 31 ones at most in all).
    least = 5 * (6 + 5 + 8 + (21 * 10) // 8)
    most = 5 * (6 + 5 + 8 + (21 * 10 + 31) // 8 + 1)
    named = 5 * (len("payload") + len("num-examples") + 8 + len("train-loss") + 8)
    for record in outcome.records[1:]:
        assert least <= record.bytes_up - named <= most


def test_dense_strategies_are_counted_by_the_same_formula():
    _, outcome = train(num_server_rounds=2)
    _, foreign = train(strategy="flwr.serverapp.strategy:FedAvg", num_server_rounds=2)
    for run in (outcome, foreign):
        assert run.records[-1].theory_bits_down == run.records[-1].theory_bits_up == 32 * SIZE * 5
        assert run.records[-1].total["theory_bits_up"] == 2 * 32 * SIZE * 5


@pytest.mark.parametrize("name", NAMES)
def test_flowers_mods_work_inside_the_strategys(name):
    keys = {"strategy": name, "local_steps": 1, "num_server_rounds": 3}
    _, plain = train(**keys)
    sizes = "flwr.clientapp.mod:arrays_size_mod,flwr.clientapp.mod:message_size_mod"
    test_mods.seen.clear()
    _, sized = train(**keys, client_mods=f"{sizes},{HERE}:inner")
    assert same(plain, sized)
    # They ran, for 5 clients in 3 rounds, and saw a plain model go in and come out.
    assert test_mods.seen == [("train", "arrays", "config"), ("metrics", "arrays")] * 15


def test_clipping_inside_stc_bounds_what_is_compressed():
    """With p = 1 and one scope an update is sent whole in norm1: mu * n = |update|_1."""
    keys = {
        "strategy": "stc",
        "strategy_args": "sparsity-up = 1.0, sparsity-down = 1.0, scope = 'model'",
        "local_steps": 1,
        "num_server_rounds": 1,
    }
    _, start = train(**{**keys, "learning_rate": 1e-9})
    movements = {}
    for mods in ("", f"{HERE}:clipping"):
        _, outcome = train(**keys, client_mods=mods)
        movements[mods] = sum(
            np.abs(a - b).sum() for a, b in zip(model(outcome), model(start), strict=True)
        )
    clipped = movements[f"{HERE}:clipping"]
    # |x|_1 <= sqrt(n) |x|_2, and the clipping norm is 0.01.
    assert clipped < 0.01 * np.sqrt(SIZE) * 1.001
    assert clipped < movements[""] / 2


def test_a_run_outlives_that_all_clients_forget(monkeypatch):
    """One client a round: more rounds in a row than end a run go into asking for the model."""

    class Forgetful(LocalGrid):
        def push_messages(self, messages):
            messages = list(messages)
            if any(m.content["config"].get("server-round") == 60 for m in messages if m.content):
                for context in self.contexts.values():
                    context.state = RecordDict()
            return super().push_messages(messages)

    monkeypatch.setattr(test_rounds, "LocalGrid", Forgetful)
    keys = {"fraction_train": 0.0, "num_server_rounds": 80, "local_steps": 1, "evaluate_every": 80}
    _, outcome = train(strategy="stc", num_clients=10, partition="iid", **keys)
    asked = [record.round for record in outcome.records if record.rejected]
    assert asked[:4] == [60, 61, 62, 63]
    assert len(outcome.records) == 81


@pytest.mark.slow
def test_lost_replies_and_lost_memory_cost_little():
    figures = compare(150, **{"data-source": "embedded"})
    undisturbed, disturbed = figures["undisturbed"], figures["disturbed"]
    assert disturbed["replies dropped"] > 200
    assert disturbed["restarts"] > 40
    assert disturbed["asked for the full model"] > 10
    assert disturbed["final accuracy"] > undisturbed["final accuracy"] - 0.05
    for run in figures.values():
        assert run["largest error of the sums"] < 1e-4
