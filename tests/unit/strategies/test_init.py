"""Strategies by short name, by path and by entry point, built from arguments."""

from importlib.metadata import EntryPoint

import numpy as np
import pytest
from flwr.app import ConfigRecord
from flwr.serverapp import strategy as flower

import strategies
from strategies.base import FederatedStrategy, RunSettings
from strategies.compressed import Compressed
from strategies.eden import EDEN
from strategies.fedavg import FedAvg
from strategies.fedsgd import FedSGD
from strategies.flower_adapter import FlowerAdapter
from strategies.qsgd import QSGD
from strategies.reply_validation import ReplyBounds
from strategies.signsgd import SignSGD
from strategies.stc import STC
from strategies.topk import TopK
from tests.support.replies import cohort, record, reply

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


class NeedsOne(Unimplemented):
    def __init__(self, needed) -> None:
        super().__init__()


not_a_class = FedAvg()


@pytest.fixture
def installed(monkeypatch):
    """Entry points of another package, one of them broken."""
    points = [
        EntryPoint("other", f"{__name__}:OtherPackages", strategies.ENTRY_POINTS),
        EntryPoint("broken", "no_such_package:Gone", strategies.ENTRY_POINTS),
        EntryPoint("fedavg", f"{__name__}:OtherPackages", strategies.ENTRY_POINTS),
    ]
    monkeypatch.setattr(
        strategies,
        "entry_points",
        lambda group: points if group == "fedavg_app.strategies" else [],
    )


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("compressed", Compressed),
        ("fedavg", FedAvg),
        ("fedsgd", FedSGD),
        ("eden", EDEN),
        ("qsgd", QSGD),
        ("signsgd", SignSGD),
        ("stc", STC),
        ("topk", TopK),
    ],
)
def test_built_in_strategy_is_loaded_by_its_short_name(name, expected):
    assert strategies.load(name) is expected


def test_strategy_is_loaded_by_its_path():
    assert strategies.load("flwr.serverapp.strategy:FedAdam") is flower.FedAdam
    assert strategies.load(f"{__name__}:OtherPackages") is OtherPackages
    assert strategies.load("strategies.fedavg:FedAvg") is FedAvg


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
    with pytest.raises(ValueError, match=r"known strategies: broken, .*, stc, topk; or package"):
        strategies.load("fedavgg")
    assert strategies.names() == NAMES


@pytest.mark.parametrize(
    ("path", "error", "reason"),
    [
        ("no_such_package:Class", ModuleNotFoundError, "no_such_package"),
        ("strategies.no_such_module:FedAvg", ModuleNotFoundError, "strategies.no_such_module"),
        ("strategies.fedavg:NoSuchClass", AttributeError, "NoSuchClass"),
        ("strategies.fedavg:", ValueError, "not a subclass"),
        (":FedAvg", ValueError, ":FedAvg"),
        (":", ValueError, ":"),
        (".fedavg:FedAvg", ValueError, "fedavg:FedAvg"),
        ("..:FedAvg", ValueError, ":FedAvg"),
    ],
)
def test_path_that_leads_nowhere_raises_an_error_that_names_it(path, error, reason):
    with pytest.raises(error, match=reason):
        strategies.load(path)


@pytest.mark.parametrize(
    "path",
    [
        "builtins:dict",
        "strategies.reply_validation:read_report",
        "flwr.server.strategy:FedAvg",  # the legacy one
        f"{__name__}:not_a_class",
    ],
)
def test_class_that_is_no_strategy_is_rejected(path):
    with pytest.raises(ValueError, match=r"not a subclass of flwr\.serverapp\."):
        strategies.load(path)
    with pytest.raises(ValueError, match="not a subclass"):
        strategies.build(path, {})


def test_federated_strategy_is_built_without_an_adapter():
    assert type(strategies.build("fedavg", {})) is FedAvg
    other = strategies.build(f"{__name__}:OtherPackages", {"size": 7})
    assert (type(other), other.size, other.label) == (OtherPackages, 7, "x")


def test_built_strategy_has_the_settings_of_the_run():
    settings = RunSettings(num_clients=7, seed=3, min_replies=2, bounds=ReplyBounds(max_examples=9))
    for name in ("fedavg", "stc", "compressed", "flwr.serverapp.strategy:FedAvg"):
        assert strategies.build(name, {}, settings).settings is settings
        assert strategies.build(name, {}).settings == RunSettings(0, 0, 1, ReplyBounds())


def test_strategy_of_flower_is_built_behind_the_adapter_for_the_whole_cohort():
    adapter = strategies.build("flwr.serverapp.strategy:FedAdam", {"eta": 0.5})
    assert type(adapter) is FlowerAdapter
    inner = adapter.inner
    assert type(inner) is flower.FedAdam
    assert inner.eta == 0.5
    for key, value in strategies.WHOLE_COHORT.items():
        assert getattr(inner, key) == value


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


def test_strategy_with_arbitrary_keywords_takes_other_arguments():
    adapter = strategies.build(f"{__name__}:TakesAnything", {"weighted_by_key": "effort"})
    assert adapter.inner.weighted_by_key == "effort"


def test_missing_argument_is_a_value_error():
    with pytest.raises(ValueError, match=r"NeedsOne: .*needed"):
        strategies.build(f"{__name__}:NeedsOne", {})


def test_argument_that_the_class_rejects_is_a_value_error():
    with pytest.raises(ValueError, match="size must not be negative"):
        strategies.build(f"{__name__}:OtherPackages", {"size": -1})


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


def test_wrapped_strategy_of_flower_takes_the_whole_cohort():
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
def test_strategy_that_cannot_be_wrapped_is_named(arguments, reason):
    with pytest.raises(ValueError, match=reason):
        strategies.build(PRIVACY, {**SETTINGS, **arguments})


def test_wrapped_strategy_accepts_as_many_examples_as_the_wrapper():
    """The wrapped FedAvg validates again what the adapter has let through."""
    settings = RunSettings(bounds=ReplyBounds(max_examples=10**12))
    arguments = {**SETTINGS, "noise_multiplier": 0.0, "clipping_norm": 9.0, "strategy": "fedavg"}
    adapter = strategies.build(PRIVACY, arguments, settings)
    sent, trained = ({"w": np.full(1, value, np.float32)} for value in (0, 2))
    adapter.configure_train(1, record(sent), ConfigRecord(), cohort(1))
    arrays, _ = adapter.aggregate_train(1, [reply(1, trained, 10**11)])
    assert arrays["w"].numpy().tolist() == [2.0]


def test_client_mod_of_a_built_in_strategy_calls_the_next_handler():
    mod = strategies.client_mod("fedavg", {})
    assert mod("message", "context", lambda m, c: (m, c)) == ("message", "context")


def test_client_mod_is_that_of_a_strategy_with_the_same_arguments():
    mod = strategies.client_mod(f"{__name__}:OtherPackages", {"size": 7})
    assert mod(None, None, None) == "other 7"


def test_strategy_of_flower_has_no_client_mod():
    assert strategies.client_mod("flwr.serverapp.strategy:FedAvg", {}) is None


@pytest.mark.parametrize(
    ("name", "arguments", "reason"),
    [
        ("nothing", {}, "known strategies"),
        ("stc", {"sparsity_up": 0}, "sparsity-up = 0"),
        ("stc", {"sparsty": 0.1}, "STC does not take sparsty; it takes: sparsity-up"),
    ],
)
def test_client_mod_of_a_strategy_that_cannot_be_built_is_an_error(name, arguments, reason):
    with pytest.raises(ValueError, match=reason):
        strategies.client_mod(name, arguments)
