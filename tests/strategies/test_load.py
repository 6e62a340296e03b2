"""Strategies are found by short name, by path and by entry point, and built from arguments."""

from importlib.metadata import EntryPoint

import pytest
from flwr.serverapp import strategy as flower

import strategies
from strategies.base import CohortStrategy
from strategies.fedavg import FedAvg
from strategies.fedsgd import FedSGD
from strategies.foreign import Screened
from strategies.limits import Limits


class Mine(CohortStrategy):
    """Mine: a third package's strategy."""

    def __init__(self, *, size: int = 3, label: str = "x") -> None:
        super().__init__()
        if size < 0:
            raise ValueError("size must not be negative")
        self.size, self.label = size, label

    def aggregate(self, replies):
        raise NotImplementedError

    @staticmethod
    def client_mod(message, context, call_next):
        return "mine"


class TakesAnything(flower.FedAvg):
    """Hands all its arguments on, as wrappers do."""

    def __init__(self, **keywords) -> None:
        super().__init__(**keywords)


class NeedsOne(CohortStrategy):
    def __init__(self, needed) -> None:
        super().__init__()

    def aggregate(self, replies):
        raise NotImplementedError


not_a_class = FedAvg()


@pytest.fixture
def installed(monkeypatch):
    """Two entry points of a third package, one of them broken."""
    points = [
        EntryPoint("mine", f"{__name__}:Mine", strategies.ENTRY_POINTS),
        EntryPoint("broken", "no_such_package:Gone", strategies.ENTRY_POINTS),
        EntryPoint("fedavg", f"{__name__}:Mine", strategies.ENTRY_POINTS),
    ]
    monkeypatch.setattr(
        strategies,
        "entry_points",
        lambda group: points if group == "fedavg_app.strategies" else [],
    )


def test_short_names():
    assert strategies.load("fedavg") is FedAvg
    assert strategies.load("fedsgd") is FedSGD


def test_paths():
    assert strategies.load("flwr.serverapp.strategy:FedAdam") is flower.FedAdam
    assert strategies.load(f"{__name__}:Mine") is Mine
    assert strategies.load("strategies.fedavg:FedAvg") is FedAvg


def test_entry_points(installed):
    assert strategies.load("mine") is Mine
    assert strategies.known() == ["broken", "fedavg", "fedsgd", "mine", "signsgd", "stc", "topk"]
    assert strategies.load("fedavg") is FedAvg, "an installed package cannot replace ours"


def test_an_entry_point_that_cannot_be_imported(installed):
    with pytest.raises(ValueError, match="no_such_package:Gone"):
        strategies.load("broken")


def test_unknown_name_names_the_known_ones(installed):
    with pytest.raises(ValueError, match="mine, signsgd, stc, topk; or package"):
        strategies.load("fedavgg")
    assert strategies.known() == ["broken", "fedavg", "fedsgd", "mine", "signsgd", "stc", "topk"]


@pytest.mark.parametrize(
    "path",
    [
        "no_such_package:Class",
        "strategies.no_such_module:FedAvg",
        "strategies.fedavg:NoSuchClass",
        "strategies.fedavg:",
        ":FedAvg",
        ":",
        ".fedavg:FedAvg",
        "..:FedAvg",
    ],
)
def test_a_path_that_cannot_be_imported(path):
    with pytest.raises(ValueError, match="cannot import"):
        strategies.load(path)


@pytest.mark.parametrize(
    "path",
    [
        "builtins:dict",
        "strategies.screening:screen",
        "flwr.server.strategy:FedAvg",  # the legacy one
        f"{__name__}:not_a_class",
    ],
)
def test_not_a_strategy(path):
    with pytest.raises(ValueError, match=r"not a subclass of flwr\.serverapp\."):
        strategies.load(path)
    with pytest.raises(ValueError, match="not a subclass"):
        strategies.build(path, {})


def test_build_ours_as_they_are():
    assert type(strategies.build("fedavg", {})) is FedAvg
    mine = strategies.build(f"{__name__}:Mine", {"size": 7})
    assert (type(mine), mine.size, mine.label) == (Mine, 7, "x")


def test_build_flowers_behind_screening_and_for_the_whole_cohort():
    screened = strategies.build("flwr.serverapp.strategy:FedAdam", {"eta": 0.5})
    assert type(screened) is Screened
    inner = screened.inner
    assert type(inner) is flower.FedAdam
    assert inner.eta == 0.5
    for key, value in strategies.WHOLE_COHORT.items():
        assert getattr(inner, key) == value


def test_unknown_argument_lists_those_accepted():
    with pytest.raises(ValueError, match="Mine does not take sise, x; it takes: size, label"):
        strategies.build(f"{__name__}:Mine", {"sise": 1, "label": "y", "x": 2})
    with pytest.raises(ValueError, match="FedAvg does not take mu; it takes: weights"):
        strategies.build("fedavg", {"mu": 1})


@pytest.mark.parametrize("key", list(strategies.WHOLE_COHORT))
@pytest.mark.parametrize("path", ["flwr.serverapp.strategy:FedAvg", f"{__name__}:TakesAnything"])
def test_the_whole_cohort_cannot_be_overridden(path, key):
    """The round loop draws the cohort; a strategy that samples again would change C."""
    with pytest.raises(ValueError, match=key):
        strategies.build(path, {key: 1})


def test_a_strategy_that_takes_anything_takes_other_arguments():
    screened = strategies.build(f"{__name__}:TakesAnything", {"weighted_by_key": "effort"})
    assert screened.inner.weighted_by_key == "effort"


def test_a_missing_argument_is_the_users_error():
    with pytest.raises(ValueError, match=r"NeedsOne: .*needed"):
        strategies.build(f"{__name__}:NeedsOne", {})


def test_an_argument_that_the_class_refuses():
    with pytest.raises(ValueError, match="size must not be negative"):
        strategies.build(f"{__name__}:Mine", {"size": -1})


PRIVACY = "flwr.serverapp.strategy:DifferentialPrivacyServerSideFixedClipping"
SETTINGS = {"noise_multiplier": 1.0, "clipping_norm": 0.5, "num_sampled_clients": 10}


def test_a_wrapper_takes_the_name_of_what_it_wraps_with_its_arguments():
    limits = Limits(max_examples=5)
    screened = strategies.build(
        PRIVACY, {**SETTINGS, "strategy": "fedavg", "weights": "uniform"}, limits
    )
    assert type(screened) is Screened
    assert type(screened.inner) is flower.DifferentialPrivacyServerSideFixedClipping
    assert screened.inner.clipping_norm == 0.5
    inner = screened.inner.strategy
    assert (type(inner), inner._weights) == (FedAvg, "uniform")
    assert screened.limits == inner.limits == limits


def test_a_wrapped_strategy_of_flowers_takes_the_whole_cohort():
    arguments = {**SETTINGS, "strategy": "flwr.serverapp.strategy:FedAdam", "eta": 0.5}
    inner = strategies.build(PRIVACY, arguments).inner.strategy
    assert (type(inner), inner.eta, inner.min_train_nodes) == (flower.FedAdam, 0.5, 1)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({}, "missing 1 required positional argument: 'strategy'"),
        ({"strategy": "nothing"}, "known strategies"),
        ({"strategy": 3}, "known strategies"),
        ({"strategy": "fedavg", "mu": 1}, "FedAvg does not take mu; it takes: weights"),
        ({"strategy": "fedavg", "clipping_norm": -1.0}, "clipping norm should be a positive"),
        ({"strategy": "fedsgd"}, "strategy = 'fedsgd': give one whose clients send models"),
        ({"strategy": "stc"}, "strategy = 'stc': give one whose clients send models"),
    ],
)
def test_what_cannot_be_wrapped_is_named(arguments, reason):
    with pytest.raises(ValueError, match=reason):
        strategies.build(PRIVACY, {**SETTINGS, **arguments})


def test_client_mod():
    assert strategies.client_mod(f"{__name__}:Mine")(None, None, None) == "mine"
    assert strategies.client_mod("flwr.serverapp.strategy:FedAvg") is None
    assert strategies.client_mod("fedavg")("message", "context", lambda m, c: (m, c)) == (
        "message",
        "context",
    )
    with pytest.raises(ValueError, match="known strategies"):
        strategies.client_mod("nothing")
