"""The strategy "compressed": compressors by name or table."""

from dataclasses import dataclass

import numpy as np
import pytest

import strategies
from strategies.compression.error_feedback import EF21, MomentumCorrection, NoFeedback, Residual
from strategies.compression.float32 import Float32
from tests.support.compressed_network import SHAPES, Network, flatten

pytestmark = pytest.mark.usefixtures("server_identity")


@dataclass(frozen=True)
class Halved(NoFeedback):
    """Error feedback of another package."""


@pytest.mark.parametrize(
    ("given", "feedback"),
    [
        ("none", NoFeedback()),
        ("residual", Residual()),
        ({"name": "ef21"}, EF21()),
        ("momentum", MomentumCorrection()),
        ({"name": "momentum", "momentum": 0.5, "clip-norm": 2.0}, MomentumCorrection(0.5, 2.0)),
        (f"{__name__}:Halved", Halved()),
    ],
)
def test_error_feedback_is_given_by_name_or_as_a_table(given, feedback):
    assert strategies.build("compressed", {"feedback": given}).codec.feedback == feedback


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"uplink": "terntary"}, "'terntary' is no compressor; known: float16, float32, low-r"),
        ({"uplink": {"sparsity": 0.1}}, "uplink = .*: give a name, or a table such as {n"),
        ({"feedback": "residuals"}, "'residuals' is no error feedback; known: ef21, momentum, "),
        ({"feedback": {"name": "momentum", "momentum": 1}}, "momentum = 1: should be less than 1"),
        ({"warmup_rounds": -1}, "warmup-rounds = -1: should be greater"),
        ({"warmup_rounds": 2, "uplink": "float32"}, "warmup-rounds = 2: Float32 has no argument"),
        ({"feedback": "momentum", "uplink": "rotated"}, "Rotated sends all entries, and only"),
        (
            {"feedback": {"name": "momentum", "momentum": "x"}},
            "MomentumCorrection: momentum = 'x': should be a valid number",
        ),
    ],
)
def test_invalid_argument_is_named(arguments, reason):
    with pytest.raises(ValueError, match=reason):
        strategies.build("compressed", arguments)
    with pytest.raises(ValueError, match=reason):
        strategies.client_mod("compressed", arguments)


@pytest.mark.parametrize(
    ("composed", "name", "arguments"),
    [
        (
            {
                "uplink": {"name": "ternary", "sparsity": 0.1},
                "downlink": {"name": "ternary", "sparsity": 0.04},
            },
            "stc",
            {"sparsity_up": 0.1, "sparsity_down": 0.04},
        ),
        (
            {"uplink": {"name": "sparse", "sparsity": 0.1, "scope": "model"}},
            "topk",
            {"sparsity_up": 0.1, "scope": "model"},
        ),
    ],
    ids=["stc", "topk"],
)
def test_composition_of_a_built_in_strategys_compressors_equals_it(composed, name, arguments):
    ours = Network("compressed", clients=3, **composed)
    theirs = Network(name, clients=3, **arguments)
    for _ in range(10):
        changes = {client: ours.random_change() for client in range(3)}
        for network in (ours, theirs):
            network.run_round(changes)
    assert np.array_equal(flatten(ours.model), flatten(theirs.model))
    assert ours.outcome.formula_bits_up == theirs.outcome.formula_bits_up


def test_shares_of_a_warm_up_are_those_of_the_paper():
    """Lin et al. 2018: 75 %, 93.75 %, 98.4375 %, 99.6 % and then 99.9 % are left out."""
    codec = strategies.build("dgc", {}).codec
    shares = [codec.uplink_in(server_round).sparsity for server_round in range(1, 8)]
    assert shares[:4] == pytest.approx([0.25, 0.0625, 0.015625, 0.004], rel=0.02)
    assert shares[4:] == [0.001] * 3


class ByShapes(Float32):
    """A compressor whose formula depends on the shapes."""

    def expected_bits(self, layout):
        return 100.0 * len(layout.shapes)


def test_bits_are_counted_by_the_formula_for_the_models_shapes():
    name = f"{__name__}:ByShapes"
    network = Network("compressed", clients=2, uplink=name, downlink=name)
    for _ in range(2):
        network.run_round({client: network.random_change() for client in range(2)})
    assert network.outcome.formula_bits_up == 2 * 100 * len(SHAPES)
    assert network.bits_down == 2 * 100 * len(SHAPES)  # the update that each one missed
