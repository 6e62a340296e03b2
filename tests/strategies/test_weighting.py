"""The weights of FedAvg's and FedSGD's means."""

import numpy as np
import pytest
from flwr.app import ConfigRecord

import strategies
from strategies.weighting import check_weights, reply_weights
from tests.strategies.replies import cohort, record, reply


def replies():
    """Return two clients' replies: 1.0 from one example, 5.0 from three."""
    return [reply(1, {"w": np.array([1.0])}, 1), reply(2, {"w": np.array([5.0])}, 3)]


@pytest.mark.parametrize(("weights", "expected"), [("samples", [1, 3]), ("uniform", [1, 1])])
def test_weights(weights, expected):
    assert reply_weights(replies(), check_weights(weights)) == expected
    assert reply_weights([], weights) == []


@pytest.mark.parametrize("weights", ["sample", "", "Uniform", None, 1, ["samples"]])
def test_anything_else_is_refused_in_one_line(weights):
    with pytest.raises(ValueError, match=r"^weights = .*: give 'samples' or 'uniform'$"):
        check_weights(weights)
    for name in ("fedavg", "fedsgd"):
        with pytest.raises(ValueError, match="give 'samples' or 'uniform'"):
            strategies.build(name, {"weights": weights})


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("fedavg", {}, 4.0),  # (1 * 1 + 3 * 5) / 4
        ("fedavg", {"weights": "samples"}, 4.0),
        ("fedavg", {"weights": "uniform"}, 3.0),  # (1 + 5) / 2
        ("fedsgd", {}, 8.0),  # 10 - 0.5 * 4
        ("fedsgd", {"weights": "samples"}, 8.0),
        ("fedsgd", {"weights": "uniform"}, 8.5),  # 10 - 0.5 * 3
    ],
)
def test_means_by_hand(name, arguments, expected):
    strategy = strategies.build(name, arguments)
    config = ConfigRecord({"learning-rate": 0.5})
    strategy.configure_train(1, record({"w": np.array([10.0])}), config, cohort(1, 2))
    arrays, _ = strategy.aggregate_train(1, replies())
    assert arrays["w"].numpy().tolist() == [expected]
