"""Strategies by short name, by path and by entry point, built from arguments."""

import dataclasses
import math
from importlib.metadata import EntryPoint

import pytest
from flwr.serverapp import strategy as flower

import strategies
from strategies import registry
from strategies.compression.chunked import Chunked
from strategies.compression.floats import Float32
from strategies.compression.quantized import Quantized
from strategies.compression.rotated import Rotated
from strategies.compression.sign import Sign
from strategies.compression.sparse import Sparse
from strategies.compression.ternary import Ternary
from strategies.fedavg import FedAvg
from strategies.rounds.flower_adapter import FlowerAdapter
from strategies.rounds.values import ReplyBounds, RunSettings
from strategies.server_optimizer import Adam
from strategies.stc import STC

pytestmark = pytest.mark.usefixtures("server_identity")


class OtherPackages(FedAvg):
    """A strategy as another package would write it."""

    def __init__(self, *, size: int = 3, label: str = "x") -> None:
        super().__init__()


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
        registry, "entry_points", lambda group: points if group == "fedavg_app.strategies" else []
    )


NAMES = [
    "broken", "cafe", "compressed", "eden", "fedavg", "fedbuff", "fednova", "fedsgd", "other",
    "qsgd", "scaffold", "secure-sum", "signsgd", "sparseloco", "stc", "topk",
]  # fmt: skip


def test_strategy_is_loaded_by_its_entry_point(installed):
    assert strategies.load("other") is OtherPackages
    assert strategies.names() == NAMES
    assert strategies.load("fedavg") is FedAvg, "an installed package cannot replace ours"


def test_entry_point_that_cannot_be_imported_raises_the_import_error(installed):
    with pytest.raises(ModuleNotFoundError, match="no_such_package"):
        strategies.load("broken")


def test_unknown_short_name_lists_the_known_names(installed):
    with pytest.raises(ValueError, match=r"is no strategy; known: broken, .*, topk; or package"):
        strategies.load("fedavgg")


@pytest.mark.parametrize("name", ["fedprox", "FedAdam", "krum"])
def test_short_name_of_a_flower_strategy_says_how_to_give_it(name):
    with pytest.raises(ValueError, match=r"give 'flwr.serverapp.strategy:") as found:
        strategies.load(name)
    path = str(found.value).split("'")[-2]
    assert strategies.load(path).__name__.lower() == name.lower()


SMALL = 1 / 400
PRIVACY = "flwr.serverapp.strategy:DifferentialPrivacyServerSideFixedClipping"
SETTINGS = {"noise_multiplier": 1.0, "clipping_norm": 0.5, "num_sampled_clients": 10}


@pytest.mark.parametrize(
    ("name", "uplink", "downlink", "feedback"),
    [
        ("stc", Ternary(SMALL, "tensor"), Ternary(SMALL, "tensor"), "residual"),
        ("topk", Sparse(0.01), Float32(), "residual"),
        ("signsgd", Sign(1.0), Sign(0.0002), "none"),
        ("qsgd", Quantized(4, 512, "l2"), Float32(), "none"),
        ("eden", Rotated(1), Float32(), "none"),
        ("compressed", Sparse(), Float32(), "residual"),
        ("sparseloco", Chunked(1 / 64, 4096, 2), Float32(), "residual"),
        ("cafe", Sparse(), Float32(), "aggregate"),
    ],
)
def test_defaults_are_those_of_the_readme(name, uplink, downlink, feedback):
    strategy = strategies.build(name, {}).strategy
    codec = strategy.codec
    assert (codec.uplink, codec.downlink, codec.feedback) == (uplink, downlink, feedback)
    assert strategy.weights == "uniform"


@pytest.mark.parametrize(
    ("name", "arguments", "reason"),
    [
        ("builtins:dict", {}, "not a subclass of Strategy"),
        ("flwr.server.strategy:FedAvg", {}, "not a subclass of Strategy"),
        (
            f"{__name__}:OtherPackages",
            {"sise": 1, "label": "y", "x": 2},
            "OtherPackages does not take sise, x; it takes: size, label",
        ),
        (
            "stc",
            {"sparsity_up": 0},
            "STC: sparsity-up = 0: should be greater than or equal to 0.000000001",
        ),
        ("stc", {"sparsity_down": 1.5}, r"sparsity-down = 1\.5: should be less than or equal to 1"),
        ("topk", {"sparsity_up": math.nan}, "sparsity-up = nan"),
        ("stc", {"scope": "layer"}, "scope = 'layer': should be 'tensor' or 'model'"),
        *(
            ("fedavg", {"weights": weights}, "weights = .*: should be 'samples' or 'uniform'$")
            for weights in ("sample", None, ["samples"])
        ),
        ("scaffold", {"global_learning_rate": math.inf}, "should be a finite number"),
        ("qsgd", {"bits": 9}, "bits = 9: should be less than or equal to 8"),
        ("sparseloco", {"bits": 3}, "bits = 3: should be 2 or 32"),
        ("sparseloco", {"feedback_decay": 0.0}, r"feedback-decay = 0\.0: should be greater than 0"),
        ("eden", {"bits": True}, "bits = True: should be a valid integer"),
        ("stc", {"p": 0.1}, "it takes: weights, server-optimizer, max-staleness"),
        ("stc", {"fraction_train": 0.5}, "STC does not take fraction-train"),
        ("signsgd", {"step_size": -1.0}, r"step-size = -1\.0"),
        ("flwr.serverapp.strategy:Krum", {"num_malicious_nodes": 1.5}, "be a valid integer"),
        *(
            (PRIVACY, {**SETTINGS, **arguments}, reason)
            for arguments, reason in (
                ({}, "missing 1 required positional argument: 'strategy'"),
                ({"strategy": "nothing"}, "is no strategy; known"),
                ({"strategy": "fedavg", "mu": 1}, "FedAvg does not take mu; it takes: weights"),
                ({"strategy": "fedavg", "noise_multiplier": "x"}, "should be a valid number"),
                ({"strategy": "stc"}, "strategy = 'stc': give one whose clients send models"),
            )
        ),
    ],
)
def test_strategy_that_cannot_be_built_is_refused_with_the_reason(name, arguments, reason):
    with pytest.raises(ValueError, match=reason):
        strategies.build(name, arguments)


@pytest.mark.parametrize("key", list(strategies.WHOLE_COHORT))
@pytest.mark.parametrize("path", ["flwr.serverapp.strategy:FedAvg", f"{__name__}:TakesAnything"])
def test_argument_that_samples_again_is_rejected(path, key):
    """The round loop draws the cohort; a strategy that samples again would change C."""
    with pytest.raises(ValueError, match=key.replace("_", "-")):
        strategies.build(path, {key: 1})


def test_wrapper_takes_a_strategys_name_and_arguments():
    settings = RunSettings(bounds=ReplyBounds(max_examples=5))
    adapter = strategies.build(
        PRIVACY, {**SETTINGS, "strategy": "fedavg", "weights": "uniform"}, settings
    )
    assert type(adapter) is FlowerAdapter
    assert type(adapter.inner) is flower.DifferentialPrivacyServerSideFixedClipping
    assert adapter.inner.clipping_norm == 0.5
    inner = adapter.inner.strategy
    assert (type(inner), inner.weights) == (FedAvg, "uniform")
    assert adapter.settings == settings
    assert inner.runner.settings == dataclasses.replace(settings, buffers=())


@pytest.mark.parametrize(
    "make",
    [
        lambda: STC(sparsity_up=2),
        lambda: STC(scope="layer"),
        lambda: Ternary(2.0),
        lambda: Quantized(bits=1),
        lambda: Adam(tau=math.nan),
    ],
)
def test_python_gets_no_object_with_arguments_out_of_bounds(make):
    with pytest.raises(ValueError, match="1 validation error"):
        make()


@pytest.mark.parametrize(
    "name", ["configure_train", "aggregate_train", "configure_evaluate", "aggregate_evaluate"]
)
def test_strategy_that_overrides_what_flowers_start_calls_is_refused_here(monkeypatch, name):
    """This project's loop does not call them: the rate would not be halved, without a word."""
    own = type("Own", (STC,), {name: lambda self, *given: None})
    monkeypatch.setitem(globals(), "Own", own)  # as `load` finds it
    with pytest.raises(ValueError, match=f"Own' overrides {name}, called in other apps only; give"):
        strategies.build(f"{__name__}:Own", {})
