"""Arguments of a strategy against the hints of its constructor."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

import strategies
from strategies.argument_types import check_types

if TYPE_CHECKING:
    from nowhere import Unknown


class Hinted:
    def __init__(
        self,
        rate: float = 1.0,
        count: int = 1,
        name: str | None = None,
        layers: tuple[int, ...] = (),
        fn: Callable[[int], int] | None = None,
        anything=None,
        own: "Hinted | None" = None,
    ) -> None: ...


class HintedByUnknown:
    def __init__(self, other: "Unknown", rate: float = 1.0) -> None: ...


@pytest.mark.parametrize(
    ("name", "value", "kind"),
    [
        ("rate", "x", "float"),
        ("rate", "0.1", "float"),
        ("rate", True, "float"),
        ("rate", [0.1], "float"),
        ("count", 1.0, "int"),
        ("count", True, "int"),
        ("name", 3, "str | None"),
        ("layers", [1, "x"], r"tuple\[int, ...\]"),
        ("fn", "json:dumps", "Callable"),
    ],
)
def test_value_of_another_type_is_named_with_the_type(name, value, kind):
    with pytest.raises(ValueError, match=rf"Hinted: {name} = .* is not of type .*{kind}") as caught:
        check_types(Hinted, {name: value})
    assert repr(value) in str(caught.value)


@pytest.mark.parametrize(
    "arguments",
    [
        {"rate": 1, "count": 2, "name": "x", "layers": [1, 2]},
        {"rate": float("inf")},
        {"anything": "x", "unknown": 3},
        {"own": Hinted()},
    ],
)
def test_values_that_fit_or_have_no_hint_pass(arguments):
    check_types(Hinted, arguments)


def test_class_whose_hints_cannot_be_read_is_not_checked():
    check_types(HintedByUnknown, {"rate": "x"})


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("flwr.serverapp.strategy:FedAdam", {"eta": "x"}),
        ("flwr.serverapp.strategy:Krum", {"num_malicious_nodes": 1.5}),
        ("dgc", {"clip_norm": True}),
        (
            "flwr.serverapp.strategy:DifferentialPrivacyServerSideFixedClipping",
            {"strategy": "fedavg", "noise_multiplier": "x", "clipping_norm": 1.0,
             "num_sampled_clients": 3},
        ),
    ],
)  # fmt: skip
def test_strategy_is_not_built_from_a_value_of_another_type(name, arguments):
    with pytest.raises(ValueError, match="is not of type"):
        strategies.build(name, arguments)
