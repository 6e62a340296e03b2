"""Flower's own strategies behind our screening equal the bare ones on the good replies alone."""

import math

import numpy as np
import pytest
from flwr.app import ConfigRecord, MetricRecord, RecordDict
from flwr.serverapp import strategy as flower

import strategies
from strategies.foreign import Screened
from strategies.limits import Limits
from tests.strategies.replies import as_numpy, cohort, failed, record, reply, reply_with

ARGUMENTS = {
    "FedAvg": {},
    "FedAdam": {"eta": 0.05, "tau": 0.01},
    "FedMedian": {},
    "Krum": {"num_malicious_nodes": 1},
}
MINIMUM = {"min_train_nodes": 1, "min_evaluate_nodes": 1, "min_available_nodes": 1}
GOOD = (11, 12, 13, 14, 15)
EXTRA, POISONED, INCOMPLETE, CRASHED = 16, 17, 18, 19


def model(seed):
    rng = np.random.default_rng(seed)
    return {
        "weight": rng.normal(size=(4, 3)).astype(np.float32),
        "bias": rng.normal(size=4).astype(np.float32),
    }


def good(server_round, node):
    return reply(node, model(100 * server_round + node), 10 * node, **{"train-loss": node / 10})


def bad(server_round):
    """Return one good client with a metric of its own and three that cannot be used."""
    extra = good(server_round, EXTRA)
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
def test_equals_the_bare_strategy_on_the_good_replies(name):
    screened = strategies.build(f"flwr.serverapp.strategy:{name}", ARGUMENTS[name])
    bare = getattr(flower, name)(**ARGUMENTS[name], **MINIMUM)
    assert isinstance(screened, Screened)
    ours, theirs = record(model(0)), record(model(0))
    for server_round in (1, 2):  # FedAdam keeps its moments
        for one, arrays in ((screened, ours), (bare, theirs)):
            one.configure_train(server_round, arrays, ConfigRecord(), cohort(*GOOD, EXTRA))
        replies = [good(server_round, node) for node in GOOD]
        replies[1:1] = bad(server_round)
        ours, our_metrics = screened.aggregate_train(server_round, replies)
        # In the same order: floating-point sums depend on it.
        order = (GOOD[0], EXTRA, *GOOD[1:])
        theirs, their_metrics = bare.aggregate_train(
            server_round, [good(server_round, node) for node in order]
        )
        assert list(ours) == ["weight", "bias"]
        for key, array in as_numpy(ours).items():
            assert np.isfinite(array).all()
            expected = theirs[key].numpy().astype(np.float32)
            np.testing.assert_array_equal(array, expected, strict=True)
        assert our_metrics == their_metrics
        assert set(our_metrics) == {"train-loss"}
        assert set(screened.rejected) == {POISONED, INCOMPLETE, CRASHED}
        theirs = record({key: array.numpy().astype(np.float32) for key, array in theirs.items()})


def test_the_bare_strategy_would_have_failed():
    """If this no longer raises, Flower screens for itself and ours may not be needed."""
    bare = flower.FedAvg(**MINIMUM)
    with pytest.raises(Exception, match=r"MetricRecord|ArrayRecord"):
        bare.aggregate_train(1, [good(1, 11), *bad(1)])


def test_configure_train_writes_to_the_whole_cohort():
    screened = strategies.build("flwr.serverapp.strategy:FedAvg", {})
    config = ConfigRecord({"learning-rate": 0.1})
    messages = list(screened.configure_train(3, record(model(0)), config, cohort(*GOOD)))
    assert sorted(message.metadata.dst_node_id for message in messages) == list(GOOD)
    for message in messages:
        assert message.metadata.message_type == "train"
        assert dict(message.content["config"]) == {"learning-rate": 0.1, "server-round": 3}
    messages = list(screened.configure_evaluate(3, record(model(0)), config, cohort(11)))
    assert [message.metadata.message_type for message in messages] == ["evaluate"]


@pytest.mark.parametrize("name", ["FedAvg", "FedMedian"])
def test_no_usable_reply(name):
    screened = strategies.build(f"flwr.serverapp.strategy:{name}", {})
    screened.configure_train(1, record(model(0)), ConfigRecord(), cohort(11, 12))
    assert screened.aggregate_train(1, [failed(11), failed(12)]) == (None, None)
    assert set(screened.rejected) == {11, 12}
    assert screened.aggregate_evaluate(1, [failed(11)]) is None


def test_aggregate_evaluate():
    def evaluated(node, num_examples, **metrics):
        metrics = MetricRecord({"num-examples": num_examples, **metrics})
        return reply_with(node, RecordDict({"metrics": metrics}))

    screened = strategies.build("flwr.serverapp.strategy:FedAvg", {})
    replies = [
        evaluated(11, 1, accuracy=0.5),
        evaluated(12, 3, accuracy=0.9, own=1.0),
        evaluated(13, -4, accuracy=0.9),
        failed(14),
    ]
    metrics = screened.aggregate_evaluate(1, replies)
    assert set(metrics) == {"accuracy", "accuracy-mean", "accuracy-p10"}
    assert metrics["accuracy-mean"] == pytest.approx(0.7)
    assert metrics["accuracy-p10"] == pytest.approx(0.54)  # a tenth of the way from 0.5 to 0.9
    assert metrics["accuracy"] == pytest.approx((0.5 + 3 * 0.9) / 4)
    assert set(screened.rejected) == {13, 14}


@pytest.mark.parametrize("count", [1, 7])
def test_integers_are_not_cut_off(count):
    """A third of 7, three times, is 6.999999999999999; as an integer that is 7, not 6."""
    arrays = {"scale": np.ones(2, np.float32), "num_batches_tracked": np.array(count)}
    for clients in (3, 6):
        nodes = range(1, clients + 1)
        screened = strategies.build("flwr.serverapp.strategy:FedAvg", {})
        screened.configure_train(1, record(arrays), ConfigRecord(), cohort(*nodes))
        mean, _ = screened.aggregate_train(1, [reply(node, arrays) for node in nodes])
        found = mean["num_batches_tracked"].numpy()
        assert (found.dtype, found.shape, found.item()) == (np.int64, (), count)


def test_one_client_cannot_take_the_weighting_metric_from_all():
    """A strategy told to weight by another metric: who does not send it is left out, alone."""
    name = "flwr.serverapp.strategy:FedAvg"
    screened = strategies.build(name, {"weighted_by_key": "effort"})
    screened.configure_train(1, record({"w": np.zeros(1)}), ConfigRecord(), cohort(1, 2, 3))
    replies = [
        reply(1, {"w": np.array([1.0])}, 5, effort=1.0),
        reply(2, {"w": np.array([5.0])}, 5, effort=3.0),
        reply(3, {"w": np.array([9.0])}, 5, effort=math.nan),
    ]
    arrays, _ = screened.aggregate_train(1, replies)
    assert arrays["w"].numpy().tolist() == [4.0]


def test_the_limits_stand_before_the_inner_strategy():
    limits = Limits(max_examples=50, max_update_norm=5.0, min_replies=2)
    screened = strategies.build("flwr.serverapp.strategy:FedAvg", {}, limits)
    start = {"w": np.full(2, 10, np.float32)}
    screened.configure_train(1, record(start), ConfigRecord(), cohort(1, 2, 3, 4))
    replies = [
        reply(1, {"w": np.array([13, 14], np.float32)}, 50),
        reply(2, {"w": np.array([13, 14.1], np.float32)}, 1),
        reply(3, start, 51),
    ]
    assert screened.aggregate_train(1, replies) == (None, None)
    assert screened.rejected == {
        1: "too few usable replies: 1, min-replies is 2",
        2: "the update's norm is 5.08035, max-update-norm is 5",
        3: "num-examples is 51, max-examples is 50",
    }
    arrays, _ = screened.aggregate_train(1, [*replies[:2], reply(4, start, 50)])
    assert arrays["w"].numpy().tolist() == [11.5, 12.0]
    assert set(screened.rejected) == {2}
    assert screened.aggregate_evaluate(1, [reply(3, start, 51)]) is None
    assert set(screened.rejected) == {3}


def wrapper(kind, **arguments):
    """Return Flower's wrapper for differential privacy around our FedAvg, without noise."""
    name = f"flwr.serverapp.strategy:DifferentialPrivacy{kind}"
    common = {"strategy": "fedavg", "noise_multiplier": 0.0, "num_sampled_clients": 3}
    return strategies.build(name, {**common, **arguments})


@pytest.mark.parametrize(
    "kind", ["ServerSideFixedClipping", "ServerSideAdaptiveClipping"], ids=["fixed", "adaptive"]
)
@pytest.mark.parametrize("tiny", [0.0, 1e-30])
def test_an_update_of_nothing_does_not_end_a_run_with_clipping(kind, tiny):
    """Flower divides by its norm in float32, where the squares of 1e-30 are zero."""
    norm = {"clipping_norm": 2.0} if "Fixed" in kind else {"initial_clipping_norm": 2.0}
    screened = wrapper(kind, **norm)
    start = {"w": np.zeros(2, np.float32)}
    still = {"w": np.full(2, tiny, np.float32)}
    moved = {"w": np.array([6, 8], np.float32)}
    for one in (screened, screened.inner):
        one.configure_train(1, record(start), ConfigRecord(), cohort(1, 2, 3))
    arrays, _ = screened.aggregate_train(1, [reply(1, still), reply(2, moved), reply(3, moved)])
    assert screened.rejected == {1: "the update is zero, which cannot be clipped"}
    np.testing.assert_allclose(arrays["w"].numpy(), [1.2, 1.6], rtol=1e-6)
    with pytest.raises(ZeroDivisionError):  # if not, the check above is not needed any more
        screened.inner.aggregate_train(1, [reply(1, still)])


def test_a_client_that_keeps_its_norm_bit_does_not_end_the_run():
    screened = wrapper("ClientSideAdaptiveClipping", initial_clipping_norm=2.0)
    start = {"w": np.zeros(2, np.float32)}
    screened.configure_train(1, record(start), ConfigRecord(), cohort(1, 2, 3))
    replies = [reply(1, start, norm_bit=0), reply(2, start), reply(3, start, norm_bit=1)]
    arrays, _ = screened.aggregate_train(1, replies)
    assert arrays is not None
    assert list(screened.rejected) == [2]
    assert "adaptiveclipping_mod" in screened.rejected[2]
    # Andrew et al.: the norm moves by exp(-0.2 (fraction of set bits - 0.5)), here not at all.
    assert screened.inner.clipping_norm == pytest.approx(2.0)


def test_the_weighting_metric_of_a_wrapped_strategy_is_demanded_too():
    screened = wrapper(
        "ServerSideFixedClipping", clipping_norm=9.0, strategy="flwr.serverapp.strategy:FedAvg",
        weighted_by_key="effort",
    )  # fmt: skip
    start = {"w": np.zeros(1, np.float32)}
    screened.configure_train(1, record(start), ConfigRecord(), cohort(1, 2, 3))
    replies = [
        reply(1, {"w": np.ones(1, np.float32)}, effort=1.0),
        reply(2, {"w": np.ones(1, np.float32)}),
        reply(3, {"w": np.full(1, 5, np.float32)}, effort=3.0),
    ]
    arrays, _ = screened.aggregate_train(1, replies)
    assert arrays["w"].numpy().tolist() == [4.0]
    assert "'effort'" in screened.rejected[2]


def test_summary_is_the_inner_strategys(caplog):
    class Loud(flower.FedAvg):
        said = 0

        def summary(self):
            self.said += 1

    inner = Loud()
    Screened(inner).summary()
    assert inner.said == 1
