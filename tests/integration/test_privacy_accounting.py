"""The privacy that a run spends, by a bound computed here."""

import logging
import math

import numpy as np
import pytest
from flwr.app import ConfigRecord
from flwr.serverapp import GaussianPrivacyEvent

import strategies
from fedavg_app.config import parse_config
from fedavg_app.errors import ConfigError
from fedavg_app.server.preparation import resolve
from strategies.rounds.values import RunSettings
from tests.support.in_process import make_config, run_here
from tests.support.replies import cohort, record, reply
from tests.support.run_folders import only_folder, read_history, read_summary

FLOWERS = "flwr.serverapp.strategy"
MODELS = "tests.support.models:"
ROUNDS, NOISE, DELTA = 4, 1.5, 1e-5
CONFIG = {
    "task": "mnist-logistic", "data-source": "embedded", "num-clients": 10, "fraction-train": 0.5,
    "num-server-rounds": ROUNDS, "target": "none", "checkpoint-every": 2,
    "strategy": f"{FLOWERS}:DifferentialPrivacyServerSideFixedClipping",
}  # fmt: skip


def arguments(inside=f"{FLOWERS}:FedAvg", more=f", target-delta = {DELTA}"):
    return (
        f"strategy = '{inside}', noise-multiplier = {NOISE}, clipping-norm = 0.5, "
        f"num-sampled-clients = 5{more}"
    )


def train(folder, text, **changes):
    config = parse_config({**CONFIG, "run-dir": str(folder), "strategy-args": text, **changes})
    run_here(config)
    return only_folder(folder)


def renyi_epsilon(rounds, sensitivity, noise=NOISE):
    """Return the least bound by Renyi divergences (Canonne et al. 2020, proposition 12).

    The sensitivity is in units of C / m, of which the noise has ``noise``.
    """
    rho = rounds * sensitivity**2 / (2 * noise**2)
    orders = np.linspace(1.01, 100, 100_000)
    at_order = np.log1p(-1 / orders) - (math.log(DELTA) + np.log(orders)) / (orders - 1)
    return float(np.min(rho * orders + at_order))


def wrapper(noise, norm, sampled):
    given = {
        "strategy": f"{FLOWERS}:FedAvg", "noise_multiplier": noise, "clipping_norm": norm,
        "num_sampled_clients": sampled, "target_delta": DELTA,
    }  # fmt: skip
    return strategies.build(CONFIG["strategy"], given, RunSettings(num_clients=10))


def released(updates, examples=1):
    """Return the model of a round of Flower's wrapper, C = 1, whose noise is negligible.

    Of each client's update of (0, 0) the first number is given, and the first client's examples.
    """
    adapter = wrapper(1e-9, 1.0, len(updates))
    nodes = range(1, len(updates) + 1)
    start = record({"w": np.zeros(2, np.float32)})
    adapter.configure_train(1, start, ConfigRecord(), cohort(*nodes))
    replies = [
        reply(node, {"w": np.array([update, 0], np.float32)}, examples if node == 1 else 1)
        for node, update in zip(nodes, updates, strict=True)
    ]
    return adapter.finish_round(replies).model["w"].numpy()


@pytest.mark.usefixtures("server_identity")
@pytest.mark.parametrize("examples", [1, 1000])
def test_a_client_changes_the_mean_by_the_accounted_sensitivity(examples):
    """In units of C / m: 1 if its update is zeroed, 2 if it is replaced or left out."""
    before = released([9, -9, -9, -9, -9], examples)

    def change(updates):
        return 5 * np.linalg.norm(before - released(updates, examples))

    assert change([0, -9, -9, -9, -9]) == pytest.approx(1, abs=1e-5)
    assert change([-9, -9, -9, -9, -9]) == pytest.approx(2, abs=1e-5)
    assert change([-9, -9, -9, -9]) == pytest.approx(2, abs=1e-5)


@pytest.mark.parametrize(("key", "sensitivity"), [("epsilon", 1), ("epsilon-replace-one", 2)])
def test_epsilon_is_that_of_its_adjacency(key, sensitivity):
    """Twenty rounds at z = 1: 30.1 where a client's update is zeroed, 81.1 where it is another."""
    adapter = wrapper(1.0, 0.5, 5)
    adapter.inner.accountant.compose(GaussianPrivacyEvent(1.0, 5, 10), 20)
    found = adapter.inner.accountant.spent()[key]
    assert found == pytest.approx({1: 30.1, 2: 81.1}[sensitivity], abs=0.05)
    assert found == pytest.approx(renyi_epsilon(20, sensitivity, 1.0), rel=2e-3)


def test_epsilon_of_every_round_is_right_also_after_a_resume(tmp_path):
    folder = train(tmp_path, arguments(), **{"num-server-rounds": 3})
    train(tmp_path, arguments(), resume=str(folder))
    spent = [line["privacy"] for line in read_history(folder)[1:]]
    assert {each["delta"] for each in spent} == {DELTA}
    for number, each in enumerate(spent, start=1):
        for key, sensitivity in (("epsilon", 1), ("epsilon-replace-one", 2)):
            assert each[key] == pytest.approx(renyi_epsilon(number, sensitivity), rel=2e-3)
    summary = read_summary(folder)
    assert {key: summary[key] for key in spent[-1]} == spent[-1]


def test_clients_of_unequal_size_weigh_the_same(tmp_path, caplog):
    """Otherwise the largest client would move the mean by more than C / m."""
    with caplog.at_level(logging.INFO):
        folder = train(tmp_path, arguments(), partition="dirichlet")
    assert len(read_history(folder)) == ROUNDS + 1
    lines = [record.getMessage() for record in caplog.records]
    assert [line for line in lines if line.startswith("epsilon covers")] == [
        "epsilon covers the models, whose means weight all clients equally; the clients' metrics, "
        "such as their losses, and which of their replies were rejected are in the history "
        "without noise"
    ]


def test_buffers_must_stay_on_the_clients_where_privacy_is_counted():
    """They are averaged without clipping and noise."""
    changes = {
        "task": f"{MODELS}NORMALISED", "strategy": CONFIG["strategy"], "strategy_args": arguments(),
    }  # fmt: skip
    problem = r"local-arrays = '': epsilon would not cover 1\.running_mean, 1\.running_var, 1\.num"
    with pytest.raises(ConfigError, match=problem):
        resolve(make_config(**changes))
    assert resolve(make_config(**changes, local_arrays="1.*"))
    assert resolve(make_config(**{**changes, "strategy_args": arguments(more="")}))


def test_run_without_an_accountant_says_nothing_of_privacy(tmp_path):
    folder = train(tmp_path, arguments(more=""))
    assert read_history(folder)[-1]["privacy"] == {}
    assert "epsilon" not in read_summary(folder)


@pytest.mark.parametrize(
    ("text", "changes", "problem"),
    [
        (arguments(inside="fedavg"), {}, "requires a strategy using FedAvg.aggregate_train"),
        (arguments(more=", target-delta = 2.0"), {}, "target_delta must be finite and strictly"),
        (arguments(more=", target-delta = 'x'"), {}, "must be real number"),
        (arguments() + ", max-epsilon = 4", {}, "would exceed max_epsilon"),
        (arguments(more=", max-epsilon = 4"), {}, "max-epsilon needs a delta: give target-delta"),
        (arguments() + ", weighted-by-key = 'n'", {}, "leave out weighted-by-key: with target-"),
        (
            arguments().replace("clipping-norm", "initial-clipping-norm"),
            {"strategy": CONFIG["strategy"].replace("Fixed", "Adaptive")},
            "AdaptiveClipping cannot count privacy.*: take DifferentialPrivacyServerSideFixed",
        ),
    ],
    ids=["our FedAvg", "delta", "text", "budget", "no delta", "weights", "adaptive"],
)
def test_settings_without_privacy_accounting_say_why(tmp_path, text, changes, problem):
    with pytest.raises(ConfigError, match=problem):
        train(tmp_path, text, **changes)
