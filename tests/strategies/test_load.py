import re
from importlib.metadata import EntryPoint

import pytest

import strategies
from strategies.base import CohortStrategy
from strategies.fedavg import FedAvg
from strategies.fedsgd import FedSGD
from strategies.foreign import Screened


def test_short_names():
    assert strategies.load("fedavg") is FedAvg
    assert strategies.load("fedsgd") is FedSGD
    assert {"fedavg", "fedsgd"} <= set(strategies.known())


def test_paths():
    from flwr.serverapp.strategy import Krum

    assert strategies.load("flwr.serverapp.strategy:Krum") is Krum
    assert strategies.load("strategies.fedavg:FedAvg") is FedAvg


def test_entry_points(monkeypatch):
    point = EntryPoint("mine", "strategies.fedsgd:FedSGD", strategies.ENTRY_POINTS)
    monkeypatch.setattr(strategies, "entry_points", lambda group: [point])
    assert strategies.load("mine") is FedSGD
    assert "mine" in strategies.known()


@pytest.mark.parametrize(
    ("name", "fragment"),
    [
        ("fedavgg", "known strategies: fedavg, fedsgd"),
        ("", "known strategies"),
        ("no.such.module:X", "cannot import 'no.such.module:X'"),
        ("strategies.fedavg:Nope", "cannot import"),
        ("strategies.fedavg:", "cannot import"),
        (":FedAvg", "cannot import"),
        ("json:JSONDecoder", "not a subclass"),
        ("json:loads", "not a subclass"),
    ],
)
def test_what_is_no_strategy_is_refused(name, fragment):
    with pytest.raises(ValueError, match=re.escape(fragment)):
        strategies.load(name)


def test_build_wraps_what_is_not_ours():
    assert isinstance(strategies.build("fedavg", {}), FedAvg)
    built = strategies.build("flwr.serverapp.strategy:FedAdam", {"eta": 0.5})
    assert isinstance(built, Screened)
    assert built.inner.eta == 0.5
    assert (built.inner.fraction_train, built.inner.min_train_nodes) == (1.0, 1)


@pytest.mark.parametrize(
    ("name", "arguments", "fragment"),
    [
        ("fedavg", {"eta": 1}, "FedAvg does not take eta; it takes: no arguments"),
        ("flwr.serverapp.strategy:FedAdam", {"etta": 1}, "does not take etta; it takes: "),
        # The round loop samples; a second sampling inside the strategy would undo its seed.
        ("flwr.serverapp.strategy:FedAdam", {"fraction_train": 0.5}, "does not take fraction"),
        ("flwr.serverapp.strategy:DifferentialPrivacyServerSideFixedClipping", {}, "missing"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(name, arguments, fragment):
    with pytest.raises(ValueError, match=re.escape(fragment)):
        strategies.build(name, arguments)


def test_client_mods():
    assert strategies.client_mod("flwr.serverapp.strategy:FedAdam") is None
    assert strategies.client_mod("fedavg") is CohortStrategy.client_mod
    assert CohortStrategy.client_mod(1, 2, lambda message, context: (message, context)) == (1, 2)
