"""The strategies under Flower's `Strategy.start` with ClientApps that know nothing of ours.

tests/e2e/test_any_flower_app.py does the same with `flwr run`; here all is in one process.
"""

import copy
import logging
import re
from functools import partial

import numpy as np
import pytest
from flwr.app import (
    ArrayRecord,
    ConfigRecord,
    Context,
    Error,
    Message,
    MetricRecord,
    RecordDict,
)
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import (
    LocalDpMod,
    adaptiveclipping_mod,
    arrays_size_mod,
    fixedclipping_mod,
    message_size_mod,
)
from flwr.serverapp import strategy as flower

import strategies
from fedavg_app.flower_internals import BaseGrid, assign_message_id, error_reply, identify_server
from strategies import compression_mod
from strategies.cafe import CAFe
from strategies.compressed import EDEN, QSGD, Compressed, TopK
from strategies.fedavg import FedAvg
from strategies.fedbuff import FedBuff
from strategies.fednova import FedNova
from strategies.scaffold import SCAFFOLD
from strategies.secure_sum import SecureSum
from strategies.signsgd import SignSGD
from strategies.stc import STC
from tests.support.compressed_network import trained
from tests.support.replies import as_numpy, record

NODES = 4
# Float64, as scikit-learn's; a counter and statistics, as batch normalisation's.
START = {
    "w": np.zeros((20, 30)), "b": np.zeros(30, np.float32),
    "norm.running_mean": np.ones(30, np.float32), "norm.num_batches_tracked": np.array(0),
}  # fmt: skip


def target(node):
    """Return the weights towards which a node's training moves."""
    return np.random.default_rng(node).normal(size=(20, 30))


def client_app(*mods, arrays="arrays", config="config", examples="num-examples", more=()):
    """Return a ClientApp as users write them."""
    app = ClientApp(mods=list(mods))

    @app.train()
    def train(message, context):
        assert set(message.content) == {arrays, config, *more}
        model = as_numpy(message.content[arrays])
        assert list(model) == list(START)
        model["w"] = model["w"] + 0.1 * (target(context.node_id) - model["w"])
        model["b"] = model["b"] + np.float32(0.1)
        model["norm.num_batches_tracked"] = model["norm.num_batches_tracked"] + 7
        metrics = {examples: 10 * context.node_id, "train_loss": float(context.node_id)}
        content = RecordDict({arrays: record(model), "metrics": MetricRecord(metrics)})
        return Message(content, reply_to=message)

    @app.evaluate()
    def evaluate(message, context):
        w = message.content[arrays]["w"].numpy()
        loss = float(np.square(w - target(context.node_id)).mean())
        metrics = MetricRecord({examples: 10 * context.node_id, "eval_loss": loss})
        return Message(RecordDict({"metrics": metrics}), reply_to=message)

    return app


class AppGrid(BaseGrid):
    """Runs a ClientApp for nodes 1 to `NODES` in this process.

    Attributes:
        bytes_down: Of the messages so far, by Flower's own count.
        bytes_up: Of the replies.
        sent: The type of each message, and the names of its records and of their arrays.
        received: Those of the replies.
    """

    def __init__(self, app):
        identify_server(1)
        self.app = app
        self.contexts = {n: Context(1, n, {}, RecordDict(), {}) for n in range(1, NODES + 1)}
        self.bytes_down = self.bytes_up = 0
        self.replies, self.errors = {}, []
        self.sent, self.received = [], []

    def get_node_ids(self):
        return list(self.contexts)

    def push_messages(self, messages):
        ids = []
        for message in messages:
            ids.append(assign_message_id(message))
            self.bytes_down += size(message)
            self.sent.append(names_in(message))
            try:
                # A copy, as over a connection.
                node = message.metadata.dst_node_id
                reply = self.app(copy.copy(message), self.contexts[node])
                self.bytes_up += size(reply)
                self.received.append(names_in(reply))
            except Exception as error:
                self.errors.append(str(error))
                reply = error_reply(message, str(error))
            self.replies[ids[-1]] = reply
        return ids

    def pull_messages(self, message_ids):
        return [
            self.replies.pop(message_id) for message_id in message_ids if message_id in self.replies
        ]


def size(message):
    if message.has_error():
        return 0
    return sum(record.count_bytes() for record in message.content.values())


def names_in(message):
    if message.has_error():
        return message.metadata.message_type, set(), set()
    records = message.content.array_records
    names = {name for record in records.values() for name in record}
    return message.metadata.message_type, set(records), names


def run(strategy, app, rounds=12, grid=None, **options):
    grid, start = grid or AppGrid(app), record(START)
    return strategy.start(grid=grid, initial_arrays=start, num_rounds=rounds, **options), grid


def optimum():
    weights = np.arange(1, NODES + 1)
    return np.average([target(node) for node in weights], axis=0, weights=weights)


@pytest.mark.parametrize("mods", [(), (compression_mod,)], ids=["", "with the mod"])
def test_fedavg_gives_what_flowers_gives(mods):
    """The mod passes on messages of strategies that do not compress."""
    ours, our_grid = run(FedAvg(), client_app(*mods), rounds=3)
    theirs, their_grid = run(flower.FedAvg(), client_app(), rounds=3)
    for name, array in ours.arrays.items():
        expected = theirs.arrays[name].numpy()
        np.testing.assert_allclose(array.numpy(), expected, rtol=1e-6, atol=1e-12)
        assert array.numpy().dtype == START[name].dtype
    for kind in ("train", "evaluate"):
        mine, others = (
            getattr(strategy, f"{kind}_metrics_clientapp") for strategy in (ours, theirs)
        )
        for server_round, metrics in others.items():
            assert dict(mine[server_round]) == pytest.approx(dict(metrics))
    assert our_grid.bytes_up == their_grid.bytes_up
    assert our_grid.bytes_down == their_grid.bytes_down


def test_fedbuff_is_fedavg_where_no_reply_is_late():
    for _ in range(2):  # a second training starts from scratch
        ours, grid = run(FedBuff(weights="samples"), client_app(), rounds=3)
    theirs, _ = run(flower.FedAvg(), client_app(), rounds=3)
    assert grid.errors == []
    for name, array in ours.arrays.items():
        np.testing.assert_allclose(array.numpy(), theirs.arrays[name].numpy(), rtol=1e-5)


P = {"sparsity_up": 0.1, "sparsity_down": 0.1}
CHEAP = {
    "stc": STC(**P, weights="samples"), "topk": TopK(**P, weights="samples"),
    "qsgd": QSGD(weights="samples"), "eden": EDEN(bits=4, weights="samples"),
    "signsgd": SignSGD(step_size=0.05),
    "cafe": CAFe(uplink={"name": "sparse", "sparsity": 0.3}, weights="samples"),
    "low rank": Compressed(uplink="low-rank", downlink="float16"),
}  # fmt: skip


@pytest.mark.parametrize("name", CHEAP)
def test_compressed_strategy_trains_an_app_with_the_mod_alone(name):
    rounds = 25
    result, grid = run(CHEAP[name], client_app(compression_mod), rounds)
    assert grid.errors == []
    before, after = (np.abs(w - optimum()).mean() for w in (0, result.arrays["w"].numpy()))
    assert after < 0.7 * before
    assert {name: array.numpy().dtype for name, array in result.arrays.items()} == {
        name: array.dtype for name, array in START.items()
    }
    assert result.arrays["norm.num_batches_tracked"].numpy() == 7 * rounds
    model = sum(array.nbytes for array in START.values())
    assert grid.bytes_up < rounds * NODES * model / 3


def test_clients_that_are_restarted_ask_for_the_model_and_its_codec():
    """In rounds 3 and 6 all have lost their states: nothing is trained in those."""
    app = client_app(compression_mod)
    grid = AppGrid(app)

    def restart(server_round, arrays):
        if server_round in (2, 5):
            for context in grid.contexts.values():
                context.state = RecordDict()

    result, _ = run(STC(**P), app, rounds=8, grid=grid, evaluate_fn=restart)
    assert set(result.train_metrics_clientapp) == {1, 2, 4, 5, 7, 8}
    assert grid.errors == []


def test_records_and_metrics_have_the_names_that_the_app_gives_them():
    names = {"arrays": "model", "config": "settings", "examples": "size"}
    keys = {"arrayrecord_key": "model", "configrecord_key": "settings", "weighted_by_key": "size"}

    def largest(contents, key):
        assert key == "size"
        sizes = [content["metrics"][key] for content in contents]
        return MetricRecord({"largest": max(sizes)})

    for strategy, mods in ((FedAvg, ()), (STC, (compression_mod,))):
        result, grid = run(
            strategy(**keys, train_metrics_aggr_fn=largest, evaluate_metrics_aggr_fn=largest),
            client_app(*mods, **names), rounds=3, train_config=ConfigRecord({"lr": 0.1}),
        )  # fmt: skip
        assert grid.errors == []
        assert result.train_metrics_clientapp[3] == MetricRecord({"largest": 40})
        assert result.evaluate_metrics_clientapp[3] == MetricRecord({"largest": 40})


def test_flowers_mods_run_inside_and_see_the_plain_model():
    strategy = STC(**P, fraction_evaluate=0.0)
    clips = LocalDpMod(clipping_norm=1.0, sensitivity=0.0, epsilon=1.0, delta=0.1)
    app = client_app(compression_mod, clips, arrays_size_mod, message_size_mod)
    result, grid = run(strategy, app, rounds=1)
    assert grid.errors == []
    # Each of the four moves by at most 1, of which STC keeps the largest entries.
    assert 0 < np.linalg.norm(result.arrays["w"].numpy()) <= 1


def test_flowers_mods_outside_measure_what_is_sent_and_refuse_to_change_it():
    app = client_app(arrays_size_mod, message_size_mod, compression_mod)
    assert run(STC(**P), app, rounds=3)[1].errors == []
    clips = LocalDpMod(clipping_norm=1.0, sensitivity=0.0, epsilon=1.0, delta=0.1)
    start = record(START)
    for mod in (clips, fixedclipping_mod, adaptiveclipping_mod):
        app = client_app(mod, compression_mod)
        grid = AppGrid(app)
        for message in STC(**P).configure_train(1, start, ConfigRecord(), grid):
            reply = app(message, grid.contexts[message.metadata.dst_node_id])
            assert "expects" in reply.error.reason


def test_model_of_trees_is_refused_in_one_line():
    trees = ArrayRecord([np.frombuffer(b"xgboost", np.uint8)])
    with pytest.raises(
        ValueError, match=r"^the model has no arrays of real floating-point numbers"
    ):
        STC().start(grid=AppGrid(client_app()), initial_arrays=trees, num_rounds=1)


@pytest.mark.parametrize(
    ("strategy", "missing"),
    [(SCAFFOLD(), "learning-rate, batch-size"), (FedNova(), "batch-size")],
)
def test_strategy_that_needs_settings_says_so(strategy, missing):
    with pytest.raises(ValueError, match=f"give {missing} in train_config"):
        run(strategy, client_app())


def test_unnamed_codec_is_reported_and_works_with_the_strategys_own_mod():
    own = Compressed(uplink=f"{__name__}:Mine")
    with pytest.raises(RuntimeError, match=r"no usable reply in any round: .*is not built in"):
        run(own, client_app(compression_mod), rounds=1)
    _, grid = run(own, client_app(Compressed(uplink=f"{__name__}:Mine").client_mod), rounds=2)
    assert grid.errors == []


class Mine(strategies.load("stc")().codec.uplink.__class__):
    """A compressor of a user's own."""


@pytest.mark.parametrize("again", ["same strategy", "same arguments", "another strategy"])
def test_second_training_of_the_same_clients_starts_from_scratch(again):
    app = client_app(compression_mod)
    first = STC(**P, weights="samples", server_optimizer="sgd")
    expected, grid = run(first, app, rounds=3)
    second = {
        "same strategy": first,
        "same arguments": STC(**P, weights="samples", server_optimizer="sgd"),
        "another strategy": TopK(**P),
    }[again]
    found, _ = run(second, app, rounds=3, grid=grid)
    assert grid.errors == []
    if again != "another strategy":
        for name, array in expected.arrays.items():
            np.testing.assert_allclose(found.arrays[name].numpy(), array.numpy(), atol=1e-6)


SERVER_SIDE, CLIENT_SIDE = "conversion: 'fedavg_strategies.update'", "'clipping_norm': what these"
WRAPPERS = {
    flower.DifferentialPrivacyServerSideFixedClipping: ((0.0, 0.1), (), SERVER_SIDE),
    flower.DifferentialPrivacyServerSideAdaptiveClipping: ((0.1,), (), SERVER_SIDE),
    flower.DifferentialPrivacyClientSideFixedClipping: (
        (0.0, 0.1), (fixedclipping_mod,), CLIENT_SIDE,
    ),
    flower.DifferentialPrivacyClientSideAdaptiveClipping: (
        (0.1,), (adaptiveclipping_mod,), CLIENT_SIDE,
    ),
}  # fmt: skip


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_wrapper_that_clips_raises_unless_clients_send_models(wrapper):
    """It reads a payload and fails, or its clients would be told to clip what they do not send."""
    numbers, mods, reason = WRAPPERS[wrapper]
    for inner, mod in ((STC(**P), compression_mod), (QSGD(), compression_mod), variate_clients()):
        config = ConfigRecord({"learning-rate": 0.1, "batch-size": 10})
        with pytest.raises((TypeError, ValueError), match=reason):
            run(wrapper(inner, *numbers, NODES), client_app(mod), train_config=config)
    strategy = wrapper(FedAvg(fraction_evaluate=0.0), *numbers, NODES)
    result, grid = run(strategy, client_app(*mods), rounds=1)
    assert grid.errors == []
    assert 0 < np.linalg.norm(result.arrays["w"].numpy()) < 3


def variate_clients():
    """Return SCAFFOLD and a mod of clients, which takes the record that their handler must add."""
    strategy = SCAFFOLD()

    def without_offset(message, context, call_next):
        def handler(message, context):
            del message.content["gradient-offset"]
            return call_next(message, context)

        return strategy.client_mod(message, context, handler)

    return strategy, without_offset


class Halving:
    """As in Flower's advanced-pytorch: the rate is halved in some rounds, the model kept."""

    def __init__(self, folder="", **arguments):
        super().__init__(**arguments)
        self.folder = folder

    def configure_train(self, server_round, arrays, config, grid):
        if server_round % 2 == 0:
            config["lr"] *= 0.5
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(self, server_round, replies):
        return super().aggregate_train(server_round, list(replies))

    def configure_evaluate(self, server_round, arrays, config, grid):
        config["last"] = server_round == 4
        return super().configure_evaluate(server_round, arrays, config, grid)

    def aggregate_evaluate(self, server_round, replies):
        metrics = super().aggregate_evaluate(server_round, replies)
        return MetricRecord({**metrics, "round": server_round})


class Around(flower.Strategy):
    """Holds a strategy, and gives all but the config on as it is."""

    def __init__(self, inner):
        self.inner = inner

    def configure_train(self, server_round, arrays, config, grid):
        own = ConfigRecord({**config, "lr": config["lr"] * 0.5 ** (server_round // 2)})
        return self.inner.configure_train(server_round, arrays, own, grid)

    def aggregate_train(self, server_round, replies):
        return self.inner.aggregate_train(server_round, replies)

    def configure_evaluate(self, server_round, arrays, config, grid):
        return self.inner.configure_evaluate(server_round, arrays, config, grid)

    def aggregate_evaluate(self, server_round, replies):
        return self.inner.aggregate_evaluate(server_round, replies)

    def summary(self):
        self.inner.summary()


def app_with_a_rate(seen, *mods):
    """Return a ClientApp that trains at the rate "lr" and notes the settings that it gets."""
    app = ClientApp(mods=list(mods))

    @app.train()
    def train(message, context):
        seen.append(dict(message.content["config"]))
        arrays = as_numpy(message.content["arrays"])
        arrays["w"] = arrays["w"] + seen[-1]["lr"] * (target(context.node_id) - arrays["w"])
        return trained(message, record(arrays))

    @app.evaluate()
    def evaluate(message, _):
        seen.append(dict(message.content["config"]))
        return Message(RecordDict({"metrics": MetricRecord({"num-examples": 1})}), reply_to=message)

    return app


# All entries travel, as float32: what Flower's FedAvg computes, but for rounding.
EXACT = {"uplink": "float32", "downlink": "float32", "feedback": "none"}
OURS = {"fedavg": (FedAvg, {}, ()), "compressed": (Compressed, EXACT, (compression_mod,))}


@pytest.mark.parametrize("name", OURS)
@pytest.mark.parametrize("how", ["subclass", "held inside"])
def test_strategy_is_overridden_and_held_inside_as_flowers_is(name, how):
    """The same rounds, settings and models as with Flower's FedAvg in its place."""

    def made(base, arguments):
        if how == "held inside":
            return Around(base(**arguments))
        return type("Own", (Halving, base), {})("out", **arguments)

    def rounds(base, arguments, mods):
        seen = []
        result, grid = run(
            made(base, arguments), app_with_a_rate(seen, *mods), rounds=4,
            train_config=ConfigRecord({"lr": 0.4}), evaluate_config=ConfigRecord({"last": False}),
        )  # fmt: skip
        assert grid.errors == []
        return result, seen

    expected, settings = rounds(flower.FedAvg, {}, ())
    found, seen = rounds(*OURS[name])
    assert seen == settings
    w = expected.arrays["w"].numpy()
    np.testing.assert_allclose(found.arrays["w"].numpy(), w, rtol=1e-5, atol=1e-6)
    assert found.evaluate_metrics_clientapp == expected.evaluate_metrics_clientapp


def test_all_settings_are_the_users_and_reach_the_handler_as_they_are():
    """Names of the protocol's entries, a seed that is a text, and a device that has a name."""
    given = {
        "head": 1, "codec": "h264", "updates": [1, 2], "arrays-key": "a", "buffers": b"b",
        "seed": "tuesday", "lr": 0.1,
    }  # fmt: skip
    for make in (STC(**P), EDEN(), QSGD()):
        seen = []
        grid = AppGrid(app_with_a_rate(seen, compression_mod))
        for node, context in grid.contexts.items():
            context.node_config = {"partition-id": f"hospital-{node}"}
        run(make, None, 2, grid, train_config=ConfigRecord(given), evaluate_config=ConfigRecord())
        assert grid.errors == []
        trainings = [settings for settings in seen if "head" in settings]
        assert trainings[:NODES] == [{**given, "server-round": 1}] * NODES
        assert trainings[NODES:] == [{**given, "server-round": 2}] * NODES


def test_clients_with_names_draw_from_streams_of_their_own():
    def updates(seed):
        replies = []
        app = app_with_a_rate([], compression_mod)
        grid = AppGrid(app)
        for context in grid.contexts.values():
            context.node_config = {"partition-id": f"hospital-{context.node_id}"}
        grid.app = lambda message, context: replies.append(app(message, context)) or replies[-1]
        config = ConfigRecord({"lr": 0.1, "seed": seed})
        uplink = {"name": "random", "sparsity": 0.1}
        run(Compressed(uplink=uplink, fraction_evaluate=0.0), None, 1, grid, train_config=config)
        replies.sort(key=lambda reply: reply.metadata.src_node_id)
        # After the payload's head come eight bytes of the seed.
        return [reply.content["fedavg-strategies"]["payload"].data[10:18] for reply in replies]

    first, again, other = updates("tuesday"), updates("tuesday"), updates("friday")
    assert first == again
    assert len({*first, *other}) == 2 * NODES


def test_other_records_of_a_message_reach_the_handler():
    class Further(STC):
        def configure_train(self, server_round, arrays, config, grid):
            for message in super().configure_train(server_round, arrays, config, grid):
                message.content["prototypes"] = record({"p": np.arange(3)})
                message.content["buffers"] = ConfigRecord({"size": 7})
                yield message

    seen = []

    def train(message, context):
        seen.append(set(message.content))
        assert message.content["prototypes"]["p"].numpy().tolist() == [0, 1, 2]
        return trained(message, message.content["arrays"])

    app = with_handler(train, compression_mod)
    _, grid = run(Further(**P, fraction_evaluate=0.0), app, rounds=2)
    assert grid.errors == []
    assert seen == [{"arrays", "config", "prototypes", "buffers"}] * 2 * NODES


def test_replies_in_float64_and_small_weights_are_averaged_as_flower_does():

    def train(message, context):
        w = message.content["arrays"]["w"].numpy().astype(np.float64) + context.node_id
        metrics = {"share": context.node_id / 10, "curve": [1.0, float(context.node_id)]}
        return trained(message, record({"w": w}), **metrics)

    strategy = FedAvg(weighted_by_key="share", fraction_evaluate=0.0)
    result, _ = run_small(strategy, with_handler(train))
    mean = (1 + 4 + 9 + 16) / 10
    assert result.train_metrics_clientapp[1]["curve"] == pytest.approx([1.0, mean])
    expected = np.full(4, mean, np.float32)
    np.testing.assert_array_equal(result.arrays["w"].numpy(), expected, strict=True)


def test_training_of_clients_without_the_mod_ends_and_says_so(caplog):
    """They must not be sent updates that their handlers cannot read."""
    grid = AppGrid(client_app(more=["fedavg-strategies"]))
    reason = "does the ClientApp have the strategy's mod, such as compression_mod?"
    with pytest.raises(RuntimeError, match=f"in any round: .*{re.escape(reason)}"):
        run(STC(**P), grid.app, rounds=2, grid=grid)
    with pytest.raises(RuntimeError, match=r"^no usable reply in 3 rounds in a row: "):
        run(STC(**P), grid.app, rounds=10, grid=grid)
    assert grid.errors == []
    assert reason in caplog.text


def with_handler(train, *mods):
    """Return a ClientApp that trains by this function, and does not evaluate."""
    app = ClientApp(mods=list(mods))
    app.train()(train)
    return app


def answering(reply, evaluated=None):
    """Return a ClientApp whose training adds 1 to "w", and replies with ``reply(message, arrays)``.

    Args:
        reply: Returns the content of a training reply.
        evaluated: Returns that of a reply to an evaluation.
    """

    def train(message, context):
        key = next(iter(message.content.array_records))
        arrays = as_numpy(message.content[key])
        arrays["w"] = arrays["w"] + np.float32(1)
        return Message(reply(context.node_id, record(arrays)), reply_to=message)

    app = with_handler(train, compression_mod)

    @app.evaluate()
    def evaluate(message, context):
        return Message(evaluated(context.node_id, message.content["arrays"]), reply_to=message)

    return app


SMALL = {"w": np.zeros(4, np.float32)}


def run_small(strategy, app, arrays=SMALL, rounds=1, **options):
    grid, start = AppGrid(app), record(arrays)
    return strategy.start(grid=grid, initial_arrays=start, num_rounds=rounds, **options), grid


def content(arrays, **metrics):
    return RecordDict({"arrays": arrays, "metrics": MetricRecord(metrics)})


@pytest.mark.parametrize("make", [FedAvg, TopK, FedNova], ids=["fedavg", "topk", "fednova"])
def test_metrics_of_any_size_are_averaged_as_flower_does(make):
    """An accuracy in percent, and values beyond 10^12; a weight of 0 counts for nothing."""

    def reply(node, arrays):
        weight, accuracy = (0, 12.5) if node == 4 else (10 * node, 90.0 + node)
        return content(arrays, **{"num-examples": weight}, accuracy=accuracy, flops=node * 1e13)

    app = answering(reply, reply)
    config = ConfigRecord({"batch-size": 0})
    ours, _ = run_small(make(), app, train_config=config)
    theirs, _ = run_small(flower.FedAvg(), app, train_config=config)
    for kind in ("train", "evaluate"):
        mine, others = (getattr(r, f"{kind}_metrics_clientapp")[1] for r in (ours, theirs))
        assert dict(mine) == pytest.approx(dict(others))
        assert mine["accuracy"] > 90


def test_replies_that_all_weigh_nothing_are_rejected():
    app = answering(lambda _, arrays: content(arrays, **{"num-examples": 0}))
    with pytest.raises(RuntimeError, match="num-examples is 0 in all usable replies"):
        run_small(TopK(fraction_evaluate=0.0), app)


@pytest.mark.parametrize("make", [FedAvg, TopK], ids=["fedavg", "topk"])
def test_selection_replaces_flowers_draw(make):
    """Of three candidates, two train: those whose own evaluation has the largest loss."""
    trained, asked = [], []

    def train(node, arrays):
        trained.append(node)
        return content(arrays, **{"num-examples": 1})

    def evaluate(node, _):
        asked.append(node)
        return content(record({}), **{"num-examples": 1}, error=-float(node))

    strategy = make(
        selection="power-of-choice candidates = 3, metric = 'error'",
        fraction_train=0.5, fraction_evaluate=0.0,
    )  # fmt: skip
    run_small(strategy, answering(train, evaluate), rounds=4)
    assert len(asked) == 12
    assert len(set(asked)) == NODES
    rounds = [(asked[3 * t : 3 * t + 3], trained[2 * t : 2 * t + 2]) for t in range(4)]
    assert all(sorted(chosen) == sorted(candidates)[:2] for candidates, chosen in rounds)


def test_default_weights_are_those_of_flowers_fedavg_and_in_our_app_the_papers():
    assert TopK().weights == "samples"
    assert strategies.build("topk", {}).strategy.weights == "uniform"


def test_arrays_in_replies_to_evaluations_do_not_travel():
    def evaluated(node, arrays):
        return content(arrays, **{"num-examples": 1}, loss=float(node))

    app = answering(lambda _, arrays: content(arrays, **{"num-examples": 1}), evaluated)
    result, grid = run_small(TopK(), app)
    assert result.evaluate_metrics_clientapp[1]["loss"] == 2.5
    assert not any("arrays" in records for kind, records, _ in grid.received if kind == "evaluate")


@pytest.mark.parametrize("make", [FedAvg, TopK, SCAFFOLD], ids=["fedavg", "topk", "scaffold"])
def test_record_of_arrays_is_the_named_one_though_there_are_others(make):
    def reply(node, arrays):
        other = record({"w": np.full(4, 99, np.float32)})
        metrics = MetricRecord({"num-examples": 1})
        return RecordDict({"arrays": other, "model": arrays, "metrics": metrics})

    arguments = {"sparsity_up": 1.0} if make is TopK else {}
    strategy, app = (
        make(arrayrecord_key="model", fraction_evaluate=0.0, **arguments),
        answering(reply),
    )
    if make is SCAFFOLD:
        app = partial(strategy.client_mod, call_next=app)
    config = ConfigRecord({"learning-rate": 0.1, "batch-size": 1})
    result, grid = run_small(strategy, app, train_config=config)
    assert grid.errors == []
    np.testing.assert_array_equal(result.arrays["w"].numpy(), np.ones(4))


MASKED = {"w": np.zeros((2, 4), np.float32), "mask": np.array([0, -np.inf, np.inf, 0], np.float32)}


@pytest.mark.parametrize("name", [*CHEAP, "fedavg", "server optimiser", "fednova", "fedbuff"])
def test_constant_infinite_entries_are_carried_as_fedavg_carries_them(name):
    """Such as attention masks that are no integers; under every strategy of one's own app."""
    strategy = {
        **CHEAP, "fedavg": FedAvg(), "server optimiser": FedAvg(server_optimizer="adam"),
        "fednova": FedNova(), "fedbuff": FedBuff(server_optimizer="sgd"),
    }[name]  # fmt: skip
    app = answering(
        lambda _, arrays: content(arrays, **{"num-examples": 1}),
        lambda *_: RecordDict({"metrics": MetricRecord({"num-examples": 1, "loss": 0.0})}),
    )
    config = ConfigRecord({"learning-rate": 0.1, "batch-size": 1})
    result, grid = run_small(strategy, app, MASKED, rounds=3, train_config=config)
    assert grid.errors == []
    assert set(result.train_metrics_clientapp) == {1, 2, 3}
    infinite = ~np.isfinite(MASKED["mask"])
    found = result.arrays["mask"].numpy()
    np.testing.assert_array_equal(found[infinite], MASKED["mask"][infinite])
    assert np.isfinite(found[~infinite]).all()
    assert result.arrays["w"].numpy().max() > 0


@pytest.mark.parametrize("make", [flower.FedAvg, FedAvg, TopK], ids=["flower", "fedavg", "topk"])
def test_functions_that_aggregate_metrics_get_the_replies_config_records(make):
    def reply(node, arrays):
        found = content(arrays, **{"num-examples": 1})
        found["place"] = ConfigRecord({"ward": f"ward {node}"})
        return found

    def wards(contents, key):
        names = sorted(str(one["place"]["ward"]) for one in contents)
        for one in contents:
            assert set(one) - {"arrays"} == {"place", "metrics"}
        return MetricRecord({"wards": len(set(names))})

    strategy = make(train_metrics_aggr_fn=wards, evaluate_metrics_aggr_fn=wards)
    result, _ = run_small(strategy, answering(reply, reply))
    for metrics in (result.train_metrics_clientapp, result.evaluate_metrics_clientapp):
        assert metrics[1] == MetricRecord({"wards": NODES})


def test_last_line_has_the_bytes_sent_and_those_of_full_models(caplog):
    """Counted apart, from the messages of the grid."""
    logger = logging.getLogger("flwr")
    logger.addHandler(caplog.handler)
    caplog.set_level(logging.INFO, "flwr")  # as Flower has it; runs of this project's app raise it
    try:
        result, grid = run(STC(**P), client_app(compression_mod), rounds=5)
    finally:
        logger.removeHandler(caplog.handler)
    model = sum(len(name) + len(array.data) for name, array in result.arrays.items())
    full_down, full_up = 2 * 5 * NODES * model, 5 * NODES * model
    line = next(text for text in reversed(caplog.messages) if text.strip())
    assert line == (
        f"Sent {grid.bytes_down:,} bytes down (full models: {full_down:,}, "
        f"{full_down / grid.bytes_down:.3g} times as many), {grid.bytes_up:,} bytes up (full "
        f"models: {full_up:,}, {full_up / grid.bytes_up:.3g} times as many)"
    )


def test_each_device_that_does_not_answer_is_named_once(caplog):
    """The SuperLink replies in its place, as node 1."""

    class Unavailable(AppGrid):
        def push_messages(self, messages):
            messages = list(messages)
            ids = super().push_messages(messages)
            for message_id, message in zip(ids, messages, strict=True):
                if message.metadata.dst_node_id in (3, 4):
                    error = Error(3, "node unavailable")
                    reply = Message(error, reply_to=message)
                    reply.metadata.__dict__["_src_node_id"] = 1
                    self.replies[message_id] = reply
            return ids

    run(FedAvg(fraction_evaluate=0.0), None, rounds=1, grid=Unavailable(client_app()))
    assert sorted(text for text in caplog.messages if "rejected" in text) == [
        f"round 1: reply of node {node} rejected: node unavailable" for node in (3, 4)
    ]


OUR_CLASSES = (STC, FedAvg, QSGD, SCAFFOLD, FedNova)


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda: STC(0.5, 0.25), "STC: .*give sparsity_up=0.5, sparsity_down=0.25"),
        (lambda: STC(sparsity=0.1), "STC: .*'sparsity'; give sparsity_up, sparsity_down"),
        (lambda: FedAvg(0.5), "FedAvg: .*give fraction_train=0.5"),
        *((lambda make=make: make(sparsity_dwon=0.1), ".*sparsity_dwon.*") for make in OUR_CLASSES),
    ],
)
def test_wrong_argument_fails_in_one_line_that_names_the_one_meant(call, reason):
    with pytest.raises(ValueError, match=f"^{reason}$"):
        call()


def test_secure_sum_trains_an_app_with_the_mod_alone_and_counts_all_bytes(caplog):
    heads = {}
    app = ClientApp(mods=[compression_mod])

    @app.train()
    def train(message, context):
        w, head = as_numpy(message.content["arrays"]).values()
        heads.setdefault(context.node_id, []).append(head[0])
        metrics = MetricRecord({"num-examples": 1, "secret": float(context.node_id)})
        arrays = record({"w": w + 0.1 * (target(context.node_id) - w), "head": head + 1})
        return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)

    @app.evaluate()
    def evaluate(message, context):
        raise AssertionError("clients must not evaluate")

    grid, strategy = AppGrid(app), SecureSum(sparsity=0.5, local_arrays=("head",))
    start = record({"w": np.zeros((20, 30)), "head": np.zeros(3)})
    for _ in range(2):  # a second training begins from scratch
        heads = {}
        with caplog.at_level(logging.INFO, "flwr"):
            result = strategy.start(grid=grid, initial_arrays=start, num_rounds=40)
        assert grid.errors == []
        best = np.mean([target(node) for node in range(1, NODES + 1)], axis=0)
        before, after = (np.abs(w - best).mean() for w in (0, result.arrays["w"].numpy()))
        assert after < 0.3 * before
        assert list(map(heads.get, (1, 2, 3, 4))) == [[*range(40)]] * NODES, "they stay on clients"
        assert not result.arrays["head"].numpy().any()
        assert f"Sent {grid.bytes_down:,} bytes down" in caplog.text
        assert f"{grid.bytes_up:,} bytes up" in caplog.text
        grid.bytes_down = grid.bytes_up = 0
    with pytest.raises(ValueError, match="fraction_evaluate: SecureSum takes 0"):
        SecureSum(fraction_evaluate=0.5).start(grid=grid, initial_arrays=start, num_rounds=1)
    assert all(not dict(metrics) for metrics in result.train_metrics_clientapp.values())
    assert {name for _, records, _ in grid.received for name in records} == {"fedavg-strategies"}
