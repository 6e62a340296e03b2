"""Server optimisers on real data, against Flower's strategies."""

import pytest

import tasks
from tests.support.in_process import model_arrays, train
from tests.support.rounding import assert_same_change

FLOWER = "flwr.serverapp.strategy"
RUN = {"num_server_rounds": 6, "local_epochs": 1, "evaluate_every": 6}


@pytest.mark.parametrize(
    ("ours", "flowers", "arguments"),
    [
        (
            "{name = 'adam', learning-rate = 0.05, beta-1 = 0.8, beta-2 = 0.95, tau = 0.01}",
            "FedAdam", "eta = 0.05, beta-1 = 0.8, beta-2 = 0.95, tau = 0.01",
        ),
        ("'adam'", "FedAdam", ""),
        ("'yogi'", "FedYogi", ""),
        (
            "{name = 'sgd', learning-rate = 0.5, momentum = 0.9}",
            "FedAvgM", "server-learning-rate = 0.5, server-momentum = 0.9",
        ),
    ],
    ids=["adam", "adam's defaults", "yogi's defaults", "momentum"],
)  # fmt: skip
def test_fedavg_with_a_server_optimizer_is_flowers_strategy(ours, flowers, arguments):
    _, found = train(strategy="fedavg", strategy_args=f"server-optimizer = {ours}", **RUN)
    _, expected = train(strategy=f"{FLOWER}:{flowers}", strategy_args=arguments, **RUN)
    state = tasks.load("mnist-logistic").initial_model(1).state_dict()
    start = [array.numpy() for array in state.values()]
    assert_same_change(model_arrays(found), model_arrays(expected), start)
    assert found.history[-1].accuracy == expected.history[-1].accuracy
