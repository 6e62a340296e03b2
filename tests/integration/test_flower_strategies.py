"""Flower's own strategies in whole runs: the metrics they ask for, and arguments they refuse."""

import numpy as np
import pytest
from flwr.serverapp import strategy as flower

import tasks
from fedavg_app.config import parse_config
from fedavg_app.errors import ConfigError, NoRepliesError
from fedavg_app.server.preparation import prepare
from fedavg_app.server_app import run
from tests.support.local_grid import LocalGrid

pytestmark = pytest.mark.slow

CLIENTS = 7
FLOWERS = "flwr.serverapp.strategy"
HERE = __name__
# By client: what it sent, as one vector, and its training loss.
sent: dict[int, tuple[np.ndarray, float]] = {}


def record_sent(message, context, call_next):
    reply = call_next(message, context)
    loss = reply.content["metrics"]["train-loss"]
    sent[context.node_config["partition-id"]] = flat(reply.content["arrays"]), loss
    return reply


def flat(arrays):
    return np.concatenate([array.numpy().astype(np.float64).ravel() for array in arrays.values()])


def train(tmp_path, strategy, arguments="", rounds=1, **changes):
    """Run all clients in this process; return the result."""
    values = {
        "task": "mnist-logistic", "data-source": "embedded", "num-clients": CLIENTS,
        "fraction-train": 1.0, "num-server-rounds": rounds, "run-dir": str(tmp_path / "runs"),
        "strategy": strategy, "strategy-args": arguments, **changes,
    }  # fmt: skip
    config = parse_config(values)
    prepared = prepare(config)  # without an identity, as before the grid of a run is there
    return run(LocalGrid(config.model_dump(by_alias=True), CLIENTS), prepared)


def test_qfedavg_is_the_published_method_with_the_clients_training_loss(tmp_path):
    """Li et al. 2020, Algorithm 2, from what the clients sent; no key is renamed."""
    q, learning_rate = 0.5, 0.1
    arguments = f"q = {q}, client-learning-rate = {learning_rate}"
    mods = {"client-mods": f"{HERE}:record_sent", "learning-rate": learning_rate}
    result = train(tmp_path, f"{FLOWERS}:QFedAvg", arguments, **mods)
    state = tasks.load("mnist-logistic").initial_model(1).state_dict()
    model = np.concatenate([array.numpy().astype(np.float64).ravel() for array in state.values()])
    vectors, losses = (np.array(values) for values in zip(*sent.values(), strict=True))
    gradients = (model - vectors) / learning_rate
    delta = (losses**q)[:, None] * gradients
    h = q * losses ** (q - 1) * np.square(gradients).sum(axis=1) + losses**q / learning_rate
    expected = model - delta.sum(axis=0) / h.sum()
    assert not result.history[-1].rejected
    np.testing.assert_allclose(flat(result.model), expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "arguments", "reason"),
    [
        ("FedAdam", "eta = 'x'", "FedAdam: eta = 'x': should be a valid number"),
        ("Krum", "num-malicious-nodes = 5", "num-malicious-nodes = 5: give 0 to 4"),
        ("MultiKrum", "num-nodes-to-select = 8", "num-nodes-to-select = 8: give 1 to 7"),
        (
            "QFedAvg",
            "client-learning-rate = 0",
            "QFedAvg failed in round 1: ZeroDivisionError: float division by zero (",
        ),
        (
            "DifferentialPrivacyServerSideFixedClipping",
            "strategy = 'flwr.serverapp.strategy:Krum', num-malicious-nodes = 6, "
            "noise-multiplier = 0.1, clipping-norm = 1.0, num-sampled-clients = 7",
            "Krum: num-malicious-nodes = 6: give 0 to 4",
        ),
    ],
)
def test_arguments_that_cannot_work_are_one_line_in_round_1(tmp_path, name, arguments, reason):
    with pytest.raises(ConfigError) as caught:
        train(tmp_path, f"{FLOWERS}:{name}", arguments)
    line = str(caught.value)
    assert line.startswith(f"strategy-args = {arguments!r}: ")
    assert reason in line
    assert "\n" not in line


@pytest.mark.parametrize(
    ("name", "arguments", "reason"),
    [
        ("Bulyan", "num-malicious-nodes = 2", "the strategy made no model of the replies"),
        ("FedAdam", "eta = nan", "the model that FedAdam made of the replies is not finite"),
    ],
)
def test_strategy_that_never_makes_a_model_ends_the_run(tmp_path, name, arguments, reason):
    with pytest.raises(NoRepliesError, match=f"no usable reply in 3 rounds in a row: {reason}"):
        train(tmp_path, f"{FLOWERS}:{name}", arguments, rounds=4)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("Krum", "num-malicious-nodes = 4"),
        ("MultiKrum", "num-nodes-to-select = 7"),
        ("Bulyan", "num-malicious-nodes = 1"),  # 4 f + 3 = 7
    ],
)
def test_largest_arguments_that_can_work_are_taken(tmp_path, name, arguments):
    result = train(tmp_path, f"{FLOWERS}:{name}", arguments)
    assert not result.history[-1].rejected


class WantsMore(flower.FedAvg):
    """A strategy that takes half of what it sees, and waits for more nodes than a cohort has."""

    def __init__(self) -> None:
        super().__init__(fraction_train=0.5, min_available_nodes=100)


def test_strategy_with_a_sample_of_its_own_takes_the_whole_cohort(tmp_path):
    result = train(tmp_path, f"{HERE}:WantsMore")
    assert result.history[-1].participants == CLIENTS
