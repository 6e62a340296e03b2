"""A run with 100,000 clients, of which 10 take part in a round: the others cost nothing."""

from functools import cache

import numpy as np
import pytest
import torch
from flwr.app import Context, RecordDict
from torch import nn

from fedavg_app.client_settings import PARTITION_ID
from fedavg_app.config import RunConfig
from fedavg_app.server.global_evaluation import CentralEvaluation
from fedavg_app.server.nodes import Nodes
from fedavg_app.server.preparation import prepare
from fedavg_app.server_app import run
from tasks.base import Task
from tasks.data.dataset import DataOptions, Dataset, Split
from tasks.training.random_streams import numpy_generator
from tests.support.local_grid import LocalGrid

CLIENTS, ROUNDS, SEED = 100_000, 3, 5


@cache
def load(_):
    inputs = np.random.default_rng(0).standard_normal((2 * CLIENTS, 2), np.float32)
    split = Split(inputs, (inputs.sum(axis=1) > 0).astype(np.int64))
    return Dataset.of(split, split.part(slice(100)), DataOptions("embedded"), "points")


TASK = Task("points", lambda: nn.Linear(2, 2), load, torch.clone, learning_rate=0.1)


class Contexts(dict):
    """The contexts of nodes whose ids say which client they are, made when they are asked for."""

    def __missing__(self, node):
        self[node] = Context(1, node, {PARTITION_ID: node - 2}, RecordDict(), self.run_config)
        return self[node]


class NumberedGrid(LocalGrid):
    def __init__(self, run_config):
        super().__init__(run_config, 0)
        self.contexts = Contexts()
        self.contexts.run_config = run_config

    def get_node_ids(self):
        raise AssertionError("a list of all nodes was made")

    def numbered_nodes(self):
        return Nodes(CLIENTS)

    def client_states(self):
        return {node - 2: repr(context.state).encode() for node, context in self.contexts.items()}

    def restore_states(self, states):
        raise NotImplementedError


@pytest.mark.parametrize("strategy", ["fedavg", "scaffold", "stc"])
def test_only_those_that_take_part_are_asked_and_kept(tmp_path, strategy):
    config = RunConfig(
        task=f"{__name__}:TASK", strategy=strategy, num_clients=CLIENTS, fraction_train=1e-4,
        num_server_rounds=ROUNDS, seed=SEED, checkpoint_every=1, run_dir=str(tmp_path),
    )  # fmt: skip
    prepared = prepare(config)
    grid = NumberedGrid(config.model_dump(by_alias=True))
    result = run(grid, prepared, CentralEvaluation)
    assert not any(metrics.rejected for metrics in result.history)
    drawn = [
        sorted(numpy_generator(SEED, "train", number).choice(CLIENTS, 10, replace=False).tolist())
        for number in range(1, ROUNDS + 1)
    ]
    asked = [client for kind, client in grid.log if kind == "train"]
    assert asked == [client for of_round in drawn for client in of_round]
    assert len(grid.log) == len(asked), "there were queries"
    assert (result.folder / "checkpoint").stat().st_size < 100_000
