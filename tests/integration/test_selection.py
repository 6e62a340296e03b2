"""Which clients take part, in whole runs with real clients."""

import numpy as np
import pytest

from fedavg_app.errors import ConfigError
from fedavg_app.partitioning import partition
from fedavg_app.server.preparation import prepare, resolve
from strategies.fedavg import FedAvg
from tests.support.in_process import (
    make_config,
    model_arrays,
    round_of_algorithm_1,
    told_by,
    train,
    training_loss,
)

pytestmark = pytest.mark.usefixtures("server_identity")
M = 5  # clients a round


def trained_in(grid):
    """Return the clients of each round."""
    numbers = [number for kind, number in grid.log if kind == "train"]
    return [numbers[M * t : M * t + M] for t in range(len(numbers) // M)]


@pytest.mark.parametrize("strategy", ["fedavg", "stc"])
def test_power_of_choice_trains_the_candidates_with_the_largest_losses(strategy):
    changes = {"strategy": strategy, "selection": "power-of-choice candidates = 12"}
    models = []
    grid, _ = train(on_round_end=lambda _, model: models.append(model), **changes)
    config = make_config(**changes)
    prepared = prepare(config)
    rows = partition(prepared.data, "train", config)
    asked = [number for kind, number in grid.log if kind == "evaluate.training_loss"]
    assert len(asked) == 12 * config.num_server_rounds
    for t, chosen in enumerate(trained_in(grid)):
        losses = {
            client: training_loss(prepared.task, prepared.data, rows[client], models[t])
            for client in asked[12 * t : 12 * t + 12]
        }
        assert set(chosen) == set(sorted(losses, key=losses.__getitem__)[-M:])


def test_client_drawn_twice_counts_twice_in_the_plain_mean():
    """Scheme I: w = (1 / m) sum of the draws' models."""
    changes = {
        "selection": "by-size", "strategy_args": "weights = 'uniform'", "num_server_rounds": 1,
        "num_clients": 3, "fraction_train": 1.0, "partition": "shards",
    }  # fmt: skip
    seed = next(seed for seed in range(1, 99) if sorted(times(seed).values()) == [1, 2])
    grid, result = train(**changes, seed=seed)
    counted = times(seed)
    assert sorted(number for kind, number in grid.log if kind == "train") == sorted(counted)
    parts = resolve(config := make_config(**changes, seed=seed))
    data = parts.task.dataset(config.data_options)
    rows, told = partition(data, "train", config), told_by(config, parts.task, data, "")
    told = {**told, "learning-rate": 0.05, "server-round": 1}
    weights = [array.numpy() for array in parts.model.sent.values()]
    splits = {client: data.train.part(rows[client]) for client in counted}
    models = {c: round_of_algorithm_1(parts.task, weights, {c: splits[c]}, told) for c in counted}
    for place, array in enumerate(model_arrays(result)):
        mean = sum(n * models[c][place].astype(np.float64) for c, n in counted.items()) / 3
        np.testing.assert_allclose(array, mean, atol=1e-6)


def times(seed):
    """Return how often each of three clients of equal sizes is drawn in round 1, by NumPy."""
    from strategies.rounds.messages import random_stream

    drawn = random_stream(seed, "selection", 0, 1).choice(3, size=3, p=np.full(3, 1 / 3))
    return {int(client): int((drawn == client).sum()) for client in set(drawn.tolist())}


def test_round_robin_takes_all_clients_in_turn():
    grid, _ = train(selection="round-robin", num_clients=10, fraction_train=0.5)
    assert trained_in(grid) == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]] * 2


class LargestFirst(FedAvg):
    """A strategy with a selection of its own: clients that never took part, then the worst."""

    def select(self, now, available, count):
        """Return the places of the clients with the largest training loss so far."""
        losses = [client.metrics.get("train-loss", np.inf) for client in available]
        assert [client.number for client in available] == list(range(len(available)))
        assert all(client.num_examples for client in available)
        return np.argsort(losses)[::-1][:count]


def test_strategy_may_choose_by_what_clients_reported():
    grid, result = train(strategy=f"{__name__}:LargestFirst", num_clients=10, fraction_train=0.5)
    rounds = trained_in(grid)
    assert sorted(rounds[0] + rounds[1]) == list(range(10))
    assert len(result.history) == 5


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"selection": "fastest"}, "selection = 'fastest': known selections: uniform, by-size"),
        ({"selection": "by-size"}, "give the strategy's argument weights = 'uniform'"),
        (
            {"selection": "oort", "strategy": "flwr.serverapp.strategy:FedAdam"},
            "selection = 'oort': leave it out: strategies written for Flower take",
        ),
    ],
)
def test_selection_that_does_not_fit_is_refused_before_the_run(changes, reason):
    with pytest.raises(ConfigError, match=reason):
        resolve(make_config(**changes))
