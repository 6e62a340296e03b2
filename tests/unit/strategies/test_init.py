"""Strategies by short name, by path and by entry point, built from arguments."""

from importlib.metadata import EntryPoint

import pytest
from flwr.serverapp import strategy as flower

import strategies
from strategies import registry
from strategies.base import FederatedStrategy, RunSettings
from strategies.compressed import Compressed
from strategies.fedavg import FedAvg
from strategies.fedsgd import FedSGD
from strategies.flower_adapter import FlowerAdapter
from strategies.reply_validation import ReplyBounds
from strategies.stc import STC

pytestmark = pytest.mark.usefixtures("server_identity")


class Unimplemented(FederatedStrategy):
    """What the strategies below share: none is run."""

    def validate(self, reply):
        raise NotImplementedError

    def accumulate(self, update):
        raise NotImplementedError

    def finalize(self, model):
        raise NotImplementedError

    def reset(self):
        raise NotImplementedError


class OtherPackages(Unimplemented):
    """A strategy as another package would write it."""

    def __init__(self, *, size: int = 3, label: str = "x") -> None:
        super().__init__()
        if size < 0:
            raise ValueError("size must not be negative")
        self.size, self.label = size, label

    def client_mod(self, message, context, call_next):
        return f"other {self.size}"


class TakesAnything(flower.FedAvg):
    """Passes all its arguments on, as wrappers do."""

    def __init__(self, **keywords) -> None:
        super().__init__(**keywords)


@pytest.fixture
def installed(monkeypatch):
    """Entry points of another package, one of them broken."""
    points = [
        EntryPoint("other", f"{__name__}:OtherPackages", strategies.STRATEGIES.group),
        EntryPoint("broken", "no_such_package:Gone", strategies.STRATEGIES.group),
        EntryPoint("fedavg", f"{__name__}:OtherPackages", strategies.STRATEGIES.group),
    ]
    monkeypatch.setattr(
        registry,
        "entry_points",
        lambda group: points if group == "fedavg_app.strategies" else [],
    )


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("compressed", Compressed),
        ("fedavg", FedAvg),
        ("fedsgd", FedSGD),
        ("stc", STC),
    ],
)
def test_built_in_strategy_is_loaded_by_its_short_name(name, expected):
    assert strategies.load(name) is expected


NAMES = [
    "broken", "compressed", "dgc", "eden", "ef21", "fedavg", "fedsgd", "other", "qsgd", "signsgd",
    "stc", "topk",
]  # fmt: skip


def test_strategy_is_loaded_by_its_entry_point(installed):
    assert strategies.load("other") is OtherPackages
    assert strategies.names() == NAMES
    assert strategies.load("fedavg") is FedAvg, "an installed package cannot replace ours"


def test_entry_point_that_cannot_be_imported_raises_the_import_error(installed):
    with pytest.raises(ModuleNotFoundError, match="no_such_package"):
        strategies.load("broken")


def test_unknown_short_name_lists_the_known_ones(installed):
    with pytest.raises(ValueError, match=r"is no strategy; known: broken, .*, topk; or package"):
        strategies.load("fedavgg")
    assert strategies.names() == NAMES


@pytest.mark.parametrize(
    ("path", "error", "reason"),
    [
        ("no_such_package:Class", ModuleNotFoundError, "no_such_package"),
        ("strategies.no_such_module:FedAvg", ModuleNotFoundError, "strategies.no_such_module"),
        ("strategies.fedavg:NoSuchClass", AttributeError, "NoSuchClass"),
        (":FedAvg", ValueError, ":FedAvg"),
    ],
)
def test_path_that_leads_nowhere_raises_an_error_that_names_it(path, error, reason):
    with pytest.raises(error, match=reason):
        strategies.load(path)


@pytest.mark.parametrize(
    "path",
    [
        "builtins:dict",
        "flwr.server.strategy:FedAvg",
    ],
)
def test_class_that_is_no_strategy_is_rejected(path):
    with pytest.raises(ValueError, match="not a subclass of Strategy"):
        strategies.load(path)
    with pytest.raises(ValueError, match="not a subclass"):
        strategies.build(path, {})


@pytest.mark.parametrize("name", ["fedprox", "FedAdam", "krum"])
def test_short_name_of_a_flower_strategy_says_how_to_give_it(name):
    with pytest.raises(ValueError, match=r"give 'flwr.serverapp.strategy:") as found:
        strategies.load(name)
    path = str(found.value).split("'")[-2]
    assert strategies.load(path).__name__.lower() == name.lower()


def test_unknown_argument_is_rejected_with_a_list_of_those_accepted():
    with pytest.raises(
        ValueError, match="OtherPackages does not take sise, x; it takes: size, label"
    ):
        strategies.build(f"{__name__}:OtherPackages", {"sise": 1, "label": "y", "x": 2})
    with pytest.raises(ValueError, match="FedAvg does not take mu; it takes: weights"):
        strategies.build("fedavg", {"mu": 1})


@pytest.mark.parametrize("key", list(strategies.WHOLE_COHORT))
@pytest.mark.parametrize("path", ["flwr.serverapp.strategy:FedAvg", f"{__name__}:TakesAnything"])
def test_argument_that_samples_again_is_rejected(path, key):
    """The round loop draws the cohort; a strategy that samples again would change C."""
    with pytest.raises(ValueError, match=key.replace("_", "-")):
        strategies.build(path, {key: 1})


PRIVACY = "flwr.serverapp.strategy:DifferentialPrivacyServerSideFixedClipping"
SETTINGS = {"noise_multiplier": 1.0, "clipping_norm": 0.5, "num_sampled_clients": 10}


def test_wrapper_takes_the_name_of_a_strategy_and_that_ones_arguments():
    settings = RunSettings(bounds=ReplyBounds(max_examples=5))
    adapter = strategies.build(
        PRIVACY, {**SETTINGS, "strategy": "fedavg", "weights": "uniform"}, settings
    )
    assert type(adapter) is FlowerAdapter
    assert type(adapter.inner) is flower.DifferentialPrivacyServerSideFixedClipping
    assert adapter.inner.clipping_norm == 0.5
    inner = adapter.inner.strategy
    assert (type(inner), inner.weights) == (FedAvg, "uniform")
    assert adapter.settings == inner.settings == settings


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({}, "missing 1 required positional argument: 'strategy'"),
        ({"strategy": "nothing"}, "is no strategy; known"),
        ({"strategy": "fedavg", "mu": 1}, "FedAvg does not take mu; it takes: weights"),
        ({"strategy": "stc"}, "strategy = 'stc': give one whose clients send models"),
    ],
)
def test_strategy_that_cannot_be_wrapped_is_named(arguments, reason):
    with pytest.raises(ValueError, match=reason):
        strategies.build(PRIVACY, {**SETTINGS, **arguments})
