"""Flower's strategies behind the adapter do what they do alone with the valid replies."""

import math

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from flwr.serverapp import strategy as flower

import strategies
from strategies.rounds.flower_adapter import FlowerAdapter
from strategies.rounds.runner import StrategyError
from strategies.rounds.values import ReplyBounds, RunSettings
from tests.support.replies import (
    as_numpy,
    cohort,
    failed,
    outcome_of_evaluation,
    reasons,
    record,
    reply,
    reply_with,
)

pytestmark = pytest.mark.usefixtures("server_identity")

ARGUMENTS = {
    "FedAvg": {},
    "FedAdam": {"eta": 0.05, "tau": 0.01},
    "FedMedian": {},
    "Krum": {"num_malicious_nodes": 1},
}
MINIMUM = {"min_train_nodes": 1, "min_evaluate_nodes": 1, "min_available_nodes": 1}
VALID = (11, 12, 13, 14, 15)
EXTRA, POISONED, INCOMPLETE, CRASHED = 16, 17, 18, 19


def model(seed):
    rng = np.random.default_rng(seed)
    return {
        "weight": rng.normal(size=(4, 3)).astype(np.float32),
        "bias": rng.normal(size=4).astype(np.float32),
    }


def valid_reply(server_round, node):
    return reply(node, model(100 * server_round + node), 10 * node, **{"train-loss": node / 10})


def other_replies(server_round):
    """Return one valid reply with a metric of its own and three that are not valid."""
    extra = valid_reply(server_round, EXTRA)
    extra.content["metrics"]["own"] = 1.0
    poisoned = model(0)
    poisoned["bias"][0] = np.nan
    incomplete = RecordDict({"metrics": MetricRecord({"num-examples": 5, "train-loss": 1.0})})
    return [
        reply(POISONED, poisoned, 10**6, **{"train-loss": math.nan}),
        extra,
        reply_with(INCOMPLETE, incomplete),
        failed(CRASHED),
    ]


@pytest.mark.parametrize("name", list(ARGUMENTS))
def test_adapter_equals_the_bare_strategy_on_the_valid_replies(name):
    adapter = strategies.build(f"flwr.serverapp.strategy:{name}", ARGUMENTS[name])
    bare = getattr(flower, name)(**ARGUMENTS[name], **MINIMUM)
    assert isinstance(adapter, FlowerAdapter)
    ours, theirs = record(model(0)), record(model(0))
    for server_round in (1, 2):  # FedAdam keeps its moments
        for strategy, arrays in ((adapter, ours), (bare, theirs)):
            strategy.configure_train(server_round, arrays, ConfigRecord(), cohort(*VALID, EXTRA))
        replies = [valid_reply(server_round, node) for node in VALID]
        replies[1:1] = other_replies(server_round)
        outcome = adapter.finish_round(replies)
        ours, our_metrics = outcome.model, outcome.metrics
        # In the same order: floating-point sums depend on it.
        order = (VALID[0], EXTRA, *VALID[1:])
        theirs, their_metrics = bare.aggregate_train(
            server_round, [valid_reply(server_round, node) for node in order]
        )
        assert list(ours) == ["weight", "bias"]
        for key, array in as_numpy(ours).items():
            assert np.isfinite(array).all()
            expected = theirs[key].numpy().astype(np.float32)
            np.testing.assert_array_equal(array, expected, strict=True)
        assert our_metrics == their_metrics
        assert set(our_metrics) == {"train-loss"}
        assert set(outcome.rejected) == {POISONED, INCOMPLETE, CRASHED}
        theirs = record({key: array.numpy().astype(np.float32) for key, array in theirs.items()})


def test_bounds_apply_before_the_inner_strategy():
    bounds = ReplyBounds(max_examples=50, max_update_norm=5.0)
    settings = RunSettings(min_replies=2, bounds=bounds)
    adapter = strategies.build("flwr.serverapp.strategy:FedAvg", {}, settings)
    start = {"w": np.full(2, 10, np.float32)}
    adapter.configure_train(1, record(start), ConfigRecord(), cohort(1, 2, 3, 4))
    replies = [
        reply(1, {"w": np.array([13, 14], np.float32)}, 50),
        reply(2, {"w": np.array([13, 14.1], np.float32)}, 1),
        reply(3, start, 51),
    ]
    outcome = adapter.finish_round(replies)
    assert (outcome.model, outcome.metrics) == (None, None)
    assert reasons(outcome) == {
        1: "too few usable replies: 1, min-replies is 2",
        2: "the update's norm is 5.08035, max-update-norm is 5",
        3: "num-examples is 51, max-examples is 50",
    }
    adapter.configure_train(2, record(start), ConfigRecord(), cohort(1, 2, 3, 4))
    outcome = adapter.finish_round([*replies[:2], reply(4, start, 50)])
    assert outcome.model["w"].numpy().tolist() == [11.5, 12.0]
    assert set(outcome.rejected) == {2}
    evaluated = outcome_of_evaluation(adapter, [reply(3, start, 51)])
    assert (evaluated.metrics, set(evaluated.rejected)) == (None, {3})


def wrapper(kind, settings=None, **arguments):
    """Return Flower's wrapper for differential privacy around our FedAvg, without noise."""
    name = f"flwr.serverapp.strategy:DifferentialPrivacy{kind}"
    common = {"strategy": "fedavg", "noise_multiplier": 0.0, "num_sampled_clients": 3}
    return strategies.build(name, {**common, **arguments}, settings)


@pytest.mark.parametrize(
    "kind", ["ServerSideFixedClipping", "ServerSideAdaptiveClipping"], ids=["fixed", "adaptive"]
)
@pytest.mark.parametrize(
    ("begin", "tiny", "dtype"),
    [(0.0, 0.0, np.float32), (0.0, 1e-30, np.float32), (7.0, 0.0, np.float16), (3.0, 0.0, float)],
)
def test_zero_update_counts_as_zero_where_flower_would_divide_by_its_norm(kind, begin, tiny, dtype):
    """It divides in float32, where the squares of 1e-30 are zero."""
    norm = {"clipping_norm": 2.0} if "Fixed" in kind else {"initial_clipping_norm": 2.0}
    adapter = wrapper(kind, **norm)
    start = {"w": np.full(2, begin, dtype)}
    still = {"w": np.full(2, begin + tiny, dtype)}
    moved = {"w": np.array([begin + 6, begin + 8], dtype)}
    for strategy in (adapter, adapter.inner):
        strategy.configure_train(1, record(start), ConfigRecord(), cohort(1, 2, 3))
    outcome = adapter.finish_round([reply(1, still), reply(2, moved), reply(3, moved)])
    assert not outcome.rejected
    expected = begin + 2 / 3 * np.array([1.2, 1.6])  # the others are clipped to the norm 2
    rtol = 2e-3 if dtype is np.float16 else 1e-6
    np.testing.assert_allclose(outcome.model["w"].numpy(), expected, rtol=rtol)
    with pytest.raises(ZeroDivisionError):  # if not, the check is not needed any more
        adapter.inner.aggregate_train(1, [reply(1, still)])


@pytest.mark.parametrize("kind", ["Server", "Client"])
def test_noise_for_another_number_of_clients_than_the_round_has_is_an_error(kind):
    """For 99 clients instead of 3 it would be a 33rd."""
    adapter = wrapper(f"{kind}SideFixedClipping", clipping_norm=2.0, num_sampled_clients=99)
    with pytest.raises(StrategyError, match="= 99, the round has 3: the noise"):
        adapter.configure_train(
            1, record({"w": np.zeros(2, np.float32)}), ConfigRecord(), cohort(1, 2, 3)
        )


def test_update_that_its_client_did_not_clip_is_rejected():
    """Its noise, and the epsilon that is counted for it, are for updates of that norm."""
    adapter = wrapper("ClientSideFixedClipping", clipping_norm=2.0)
    start = {"w": np.zeros(2, np.float32)}
    adapter.configure_train(1, record(start), ConfigRecord(), cohort(1, 2, 3))
    clipped, whole = ({"w": np.array([x, 0], np.float32)} for x in (2, 2.1))
    outcome = adapter.finish_round([reply(1, clipped), reply(2, whole), reply(3, clipped)])
    assert outcome.model["w"].numpy().tolist() == [2, 0]
    assert reasons(outcome) == {
        2: "the update's norm is 2.1, clipping-norm is 2; client-mods needs fixedclipping_mod"
    }


def test_buffers_are_averaged_outside_a_wrapped_strategy_of_ours():
    settings = RunSettings(buffers=("count",))
    adapter = wrapper("ServerSideFixedClipping", settings, clipping_norm=9.0)
    start = {"w": np.zeros(2, np.float32), "count": np.array(3)}
    adapter.configure_train(1, record(start), ConfigRecord(), cohort(1, 2, 3))
    replies = [reply(n, {"w": np.ones(2, np.float32), "count": np.array(5)}) for n in (1, 2, 3)]
    found = as_numpy(adapter.finish_round(replies).model)
    assert (found["w"].tolist(), found["count"].item()) == ([1, 1], 5)


def test_reply_without_norm_bit_is_rejected_where_clipping_adapts():
    adapter = wrapper("ClientSideAdaptiveClipping", initial_clipping_norm=2.0)
    start = {"w": np.zeros(2, np.float32)}
    adapter.configure_train(1, record(start), ConfigRecord(), cohort(1, 2, 3))
    replies = [reply(1, start, norm_bit=0), reply(2, start), reply(3, start, norm_bit=1)]
    outcome = adapter.finish_round(replies)
    assert outcome.model is not None
    assert list(outcome.rejected) == [2]
    assert "adaptiveclipping_mod" in str(outcome.rejected[2])
    # Andrew et al.: the norm moves by exp(-0.2 (fraction of set bits - 0.5)), here not at all.
    assert adapter.inner.clipping_norm == pytest.approx(2.0)


BY_PLACE = {
    "QFedAvg": {"client_learning_rate": 0.1},
    "FedAvgM": {"server_momentum": 0.9},
    "Bulyan": {"num_malicious_nodes": 0},
    "DifferentialPrivacyServerSideFixedClipping": {
        "strategy": "fedavg", "noise_multiplier": 0.0, "num_sampled_clients": 3,
        "clipping_norm": 0.5,
    },
}  # fmt: skip


@pytest.mark.parametrize("name", list(BY_PLACE))
def test_order_of_a_replys_arrays_does_not_matter(name):
    """These strategies of Flower's match the arrays of replies by position."""
    found = []
    for order in (list, lambda items: list(items)[::-1]):
        adapter = strategies.build(f"flwr.serverapp.strategy:{name}", BY_PLACE[name])
        arrays = record(model(0))
        for server_round in (1, 2):
            adapter.configure_train(server_round, arrays, ConfigRecord(), cohort(1, 2, 3))
            replies = [valid_reply(server_round, node) for node in (1, 2, 3)]
            first = replies[0].content["arrays"]
            replies[0].content["arrays"] = ArrayRecord(dict(order(first.items())))
            outcome = adapter.finish_round(replies)
            assert not outcome.rejected
            arrays = outcome.model
        found.append(as_numpy(arrays))
    for key in found[0]:
        np.testing.assert_array_equal(found[0][key], found[1][key])


class RenamesArrays(flower.FedAvg):
    def aggregate_train(self, server_round, replies):
        _, metrics = super().aggregate_train(server_round, list(replies))
        return record({"another": np.ones(3)}), metrics


def test_strategy_that_returns_other_arrays_is_named():
    adapter = FlowerAdapter(RenamesArrays(**MINIMUM))
    adapter.configure_train(1, record(model(0)), ConfigRecord(), cohort(*VALID))
    with pytest.raises(StrategyError, match="RenamesArrays failed in round 1"):
        adapter.finish_round([valid_reply(1, node) for node in VALID])


class Overflows(flower.FedAvg):
    """A strategy whose model is finite in float64, and infinite in the model's float32."""

    seen = ()

    def aggregate_train(self, server_round, replies):
        replies = list(replies)
        self.seen = (*self.seen, len(replies))
        arrays, metrics = super().aggregate_train(server_round, replies)
        huge = {name: array.numpy().astype(np.float64) * 1e60 for name, array in arrays.items()}
        return record(huge), metrics


def test_non_finite_model_is_not_used_and_leaves_the_strategy_unchanged(caplog):
    inner = Overflows(**MINIMUM)
    inner.seen = (7,)
    adapter = FlowerAdapter(inner)
    adapter.configure_train(1, record(model(0)), ConfigRecord(), cohort(*VALID))
    replies = [*(valid_reply(1, node) for node in VALID), failed(CRASHED)]
    outcome = adapter.finish_round(replies)
    assert (outcome.model, outcome.metrics) == (None, None)
    reason = "the model that Overflows made of the replies is not finite"
    assert {
        node: text for node, text in reasons(outcome).items() if node != CRASHED
    } == dict.fromkeys(VALID, reason)
    assert CRASHED in outcome.rejected
    assert inner.seen == (7,)
    assert f"round 1: reply of node {VALID[0]} rejected: {reason}" in caplog.text
