"""The privacy that a run spends, between its exact value and a bound by hand."""

import math
from statistics import NormalDist

import pytest

from fedavg_app.config import parse_config
from fedavg_app.errors import ConfigError
from tests.support.in_process import run_here
from tests.support.run_folders import only_folder, read_history, read_summary

FLOWERS = "flwr.serverapp.strategy"
ROUNDS, NOISE, DELTA = 4, 1.5, 1e-5
CONFIG = {
    "task": "mnist-logistic", "data-source": "embedded", "num-clients": 10, "fraction-train": 0.5,
    "num-server-rounds": ROUNDS, "target-accuracy": 0.0, "checkpoint-every": 2,
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


def exact_epsilon(rounds):
    """Return the epsilon of so many Gaussian mechanisms (Balle and Wang 2018, theorem 8)."""
    mu, normal = math.sqrt(rounds) / NOISE, NormalDist()

    def delta(epsilon):
        first = normal.cdf(mu / 2 - epsilon / mu)
        return first - math.exp(epsilon) * normal.cdf(-mu / 2 - epsilon / mu)

    low, high = 0.0, 100.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if delta(middle) > DELTA else (low, middle)
    return high


def bound(rounds):
    """Return Mironov's bound (2017, proposition 3) at the order that makes it least."""
    rho = rounds / (2 * NOISE**2)
    return rho + 2 * math.sqrt(rho * math.log(1 / DELTA))


def test_epsilon_of_every_round_is_right_and_goes_on_after_a_resume(tmp_path):
    folder = train(tmp_path, arguments(), **{"num-server-rounds": 3})
    train(tmp_path, arguments(), resume=str(folder))
    spent = [line["privacy"] for line in read_history(folder)[1:]]
    assert {one["delta"] for one in spent} == {DELTA}
    for number, one in enumerate(spent, start=1):
        assert exact_epsilon(number) <= one["epsilon"] <= bound(number)
    summary = read_summary(folder)
    assert (summary["epsilon"], summary["delta"]) == (spent[-1]["epsilon"], DELTA)


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
        (arguments(), {"partition": "dirichlet"}, "requires equal client weights"),
    ],
    ids=["our FedAvg", "delta", "text", "budget", "weights"],
)
def test_what_cannot_be_accounted_says_why(tmp_path, text, changes, problem):
    with pytest.raises(ConfigError, match=problem):
        train(tmp_path, text, **changes)
