"""Arguments of a strategy against the hints of its constructor."""

import pytest

import strategies


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
    with pytest.raises(ValueError, match=r"should be a valid (number|integer)"):
        strategies.build(name, arguments)
