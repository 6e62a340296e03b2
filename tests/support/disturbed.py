"""Strategies when devices misbehave: replies that never arrive, clients that lose their state.

Trains logistic regression on MNIST twice with each strategy, from one seed: undisturbed, and with
20 % of the replies dropped at random and, in every round, 5 % of the participants restarted without
their state. `conservation` checks that no update is lost or counted twice.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Context, Message, RecordDict

import strategies
from fedavg_app.client_app import app
from fedavg_app.config import RunConfig, parse_arguments
from fedavg_app.flower_internals import BaseGrid, assign_message_id, error_reply, identify_server
from fedavg_app.results.metrics import TrainingResult
from fedavg_app.server.evaluation import CentralEvaluation
from fedavg_app.server.global_model import GlobalModel
from fedavg_app.server.node_registry import NodeRegistry
from fedavg_app.server.run_components import load_task, run_settings
from fedavg_app.server.training_loop import TrainingLoop
from fedavg_app.server_app import client_config
from fedavg_app.training_plan import make_plan
from strategies.base import FederatedStrategy
from strategies.compressed_server import CompressedStrategy
from tasks.training.random_streams import numpy_generator
from tests.support.conservation import MOD, ConservationCheck

FIRST_NODE = 2


class DisturbedGrid(BaseGrid):
    """Runs the real ClientApp in this process; drops replies and clients' states at random.

    Args:
        config: The run config.
        drop_rate: The probability that the reply of a client that trained is dropped.
        restart_rate: The probability that a client has lost its state when it is to train.
    """

    def __init__(
        self, config: RunConfig, drop_rate: float = 0.0, restart_rate: float = 0.0
    ) -> None:
        identify_server(1)
        self.config, self.drop_rate, self.restart_rate = config, drop_rate, restart_rate
        self.contexts = [self._new_context(client) for client in range(config.num_clients)]
        self.rng = numpy_generator(config.seed, "disturbance")
        self.num_dropped = self.num_restarts = 0
        self._replies: dict[str, Message] = {}

    def _new_context(self, client: int) -> Context:
        node: dict[str, bool | float | int | str] = {
            "partition-id": client,
            "num-partitions": self.config.num_clients,
        }
        run_config = self.config.model_dump(by_alias=True)
        return Context(1, FIRST_NODE + client, node, RecordDict(), run_config)

    def get_node_ids(self) -> list[int]:
        """Return one node id per client."""
        return [context.node_id for context in self.contexts]

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        """Run the messages' clients; some have lost their state, and some replies are dropped."""
        ids = []
        for message in messages:
            ids.append(assign_message_id(message))
            client = message.metadata.dst_node_id - FIRST_NODE
            training = message.metadata.message_type == "train"
            if training and self.rng.random() < self.restart_rate:
                self.contexts[client] = self._new_context(client)
                self.num_restarts += 1
            try:
                reply = app(message, self.contexts[client])
            except Exception as error:  # as Flower's engines do
                reply = error_reply(message, str(error))
            if training and self.rng.random() < self.drop_rate:
                reply = error_reply(message, "dropped")
                self.num_dropped += 1
            self._replies[ids[-1]] = reply
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        """Return the replies."""
        return [self._replies.pop(i) for i in list(message_ids) if i in self._replies]


def train(
    grid: DisturbedGrid, strategy: FederatedStrategy[Any]
) -> tuple[ArrayRecord, TrainingResult]:
    """Return the initial model and the result of the run of ``grid.config``."""
    config = grid.config
    task = load_task(config)
    data = task.dataset(config.data_options)
    initial = ArrayRecord(task.initial_model(config.seed).state_dict())
    strategy.settings = run_settings(config, GlobalModel.initial(task, config))
    nodes = NodeRegistry(grid, config.num_clients)
    nodes.wait_for_start()
    result = TrainingLoop(
        grid,
        strategy,
        initial,
        nodes,
        make_plan(config, task),
        client_config(config, data),
        CentralEvaluation(task, data, config),
        on_round_end=lambda *_: None,
    ).run()
    return initial, result


def run(grid: DisturbedGrid) -> dict[str, float]:
    """Return the figures of one run."""
    config = grid.config
    arguments = parse_arguments("strategy-args", config.strategy_args)
    strategy = strategies.build(config.strategy, arguments)
    assert isinstance(strategy, CompressedStrategy)
    check = ConservationCheck(strategy)
    initial, result = train(grid, strategy)
    assert result.model is not None
    tested = [metrics.accuracy for metrics in result.history if metrics.accuracy is not None]
    asked = [
        reason
        for metrics in result.history
        for reason in metrics.rejected.values()
        if "full model next round" in reason
    ]
    return {
        "last": float(np.mean(tested[-5:])),
        "dropped": grid.num_dropped,
        "restarts": grid.num_restarts,
        "asked": len(asked),
        "model": check.error_of_model(initial, result.model),
        "clients": check.error_of_clients(grid.contexts),
    }


def compare(rounds: int, **keys: Any) -> dict[str, dict[str, float]]:
    """Return the figures of the undisturbed and the disturbed run."""
    values = {
        "task": "mnist-logistic", "strategy": "stc", "num-clients": 100, "local-steps": 1,
        "batch-size": 20,
        "learning-rate": 0.04, "num-server-rounds": rounds, "evaluate-every": max(rounds // 30, 1),
        "target-accuracy": 0.0, "partition": "classes", "client-mods": MOD, **keys,
    }  # fmt: skip
    config = RunConfig(**values)
    return {
        "undisturbed": run(DisturbedGrid(config)),
        "disturbed": run(DisturbedGrid(config, drop_rate=0.2, restart_rate=0.05)),
    }
