"""The strategy "compressed": compressors by name or table."""

import pytest

import strategies
from strategies.compression.codec import Codec
from strategies.compression.compressor import Compressor
from strategies.compression.floats import Float16, Float32
from strategies.compression.sparse import Sparse
from tests.support.compressed_network import SHAPES, Network

pytestmark = pytest.mark.usefixtures("server_identity")


def test_compressor_is_given_by_name_or_as_a_table():
    uplink = {"name": "sparse", "sparsity": 0.1, "scope": "model"}
    built = strategies.build("compressed", {"uplink": uplink, "downlink": "float16"})
    codec = built.strategy.codec
    assert (codec.uplink, codec.downlink) == (Sparse(0.1, "model"), Float16())


class Abstract(Compressor):
    """Lacks the methods."""


not_a_class = Float32()
UPLINKS = [
    ({"name": "builtins:dict"}, "'builtins:dict' is not a subclass of Compressor"),
    ({"name": f"{__name__}:not_a_class"}, "is not a subclass of Compressor"),
    ({"name": f"{__name__}:Abstract"}, "Abstract: .*abstract"),
    ({"name": "sparse", "sparsty": 0.1}, "Sparse does not take sparsty; it takes: sparsity"),
    ({"name": "float32", "scope": "model"}, "Float32 does not take scope; it takes: no arguments"),
    ({"name": "sparse", "sparsity": 2}, "sparsity = 2: should be less than or equal to 1"),
    ({"name": "quantized", "bits": 1}, "bits = 1: should be greater than or equal to 2"),
    ({"name": "quantized", "bits": 2.5}, "bits = 2.5: should be a valid integer"),
    ({"name": "quantized", "norm": "l1"}, "norm = 'l1': should be 'l2' or 'max'"),
    ({"name": "rotated", "bits": True}, "bits = True"),
    ({"name": "low-rank", "rank": 0}, "rank = 0: should be greater"),
]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        *(({"uplink": uplink}, reason) for uplink, reason in UPLINKS),
        (
            {"uplink": "terntary"},
            "'terntary' is no compressor; known: chunked, float16, float32, low-r",
        ),
        ({"uplink": {"sparsity": 0.1}}, "uplink = .*: give a name, or a table such as {n"),
        ({"feedback": "residuals"}, "feedback = 'residuals': should be 'none' or 'residual'"),
        ({"feedback": "none", "feedback_decay": 0.9}, "feedback-decay = 0.9 with feedback 'none'"),
        ({"feedback_decay": 1.5}, r"feedback-decay = 1\.5: should be less than or equal to 1"),
        ({"warmup_rounds": 4}, "Compressed does not take warmup-rounds"),
    ],
)
def test_invalid_argument_is_named(arguments, reason):
    with pytest.raises(ValueError, match=reason):
        strategies.build("compressed", arguments)
    with pytest.raises(ValueError, match=reason):
        strategies.client_mod("compressed", arguments)


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
    assert network.bits_down == 2 * 100 * len(SHAPES)  # the update that each client missed


def test_codec_with_a_rule_of_an_earlier_version_is_refused():
    text = str(strategies.build("topk", {}).strategy.codec)
    assert Codec.parse(text) is not None
    with pytest.raises(ValueError, match="feedback = 'momentum': give one of 'none',"):
        Codec.parse(text.replace('"residual"', '"momentum"'))
    warm = Codec.parse(text.replace('"warmup-rounds":0', '"warmup-rounds":4'))
    assert str(warm) == text, "so its digest is not that of the server's messages"


def test_decay_is_in_the_codecs_text_unless_it_is_1():
    without, given = (
        str(strategies.build("compressed", {"feedback_decay": decay}).strategy.codec)
        for decay in (1.0, 0.75)
    )
    assert '"feedback":{"name":"residual"}' in without
    assert given == without.replace('{"name":"res', '{"decay":0.75,"name":"res')
    parsed = Codec.parse(given)
    assert (parsed.feedback_decay, str(parsed)) == (0.75, given)
    with pytest.raises(ValueError, match=r"feedback-decay = 0.0 with .*: give a number above 0"):
        Codec.parse(given.replace("0.75", "0.0"))
