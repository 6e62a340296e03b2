"""STC when devices misbehave: replies that never arrive, clients that lose their state.

Trains logistic regression on MNIST twice from one seed, undisturbed and with 20 % of the replies
dropped at random and, in every round, 5 % of the participants restarted without their state, and
checks that no update is lost or counted twice: the mean updates that the server accepted must sum
to the change of the global model plus the server's residual.

    python -m results.stc_mnist.stc_disturbed --data-dir /path/to/mnist --rounds 2000
"""

import argparse
import logging
from collections.abc import Iterable
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Context, Message, RecordDict
from numpy.typing import NDArray

import tasks
from fedavg_app.client_app import app
from fedavg_app.config import RunConfig
from fedavg_app.flower_internals import BaseGrid, assign_message_id, error_reply, identify_server
from fedavg_app.server.evaluation import CentralEvaluation
from fedavg_app.server.metrics import TrainingResult
from fedavg_app.server.node_registry import NodeRegistry
from fedavg_app.server.run_components import load_task, run_settings
from fedavg_app.server.training_loop import TrainingLoop
from fedavg_app.server.training_plan import make_plan
from fedavg_app.server_app import client_config
from strategies.base import FederatedStrategy
from strategies.compressed_server import ModelNeededError
from strategies.compression.decoded_update import Vector
from strategies.flower_arrays import from_record
from strategies.reply_validation import ReplyError
from strategies.stc import STC
from tasks.random_streams import numpy_generator

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
        node = {"partition-id": client, "num-partitions": self.config.num_clients}
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


class SummingSTC(STC):
    """STC that adds up, in float64, the mean updates that it accepts.

    Attributes:
        accepted: Their sum.
        model_requests: How many replies asked for the full model.
    """

    def __init__(self) -> None:
        super().__init__()
        self.accepted: NDArray[np.float64] = np.zeros(1)
        self.model_requests = 0

    def combine(self, total: NDArray[np.float64], weight: float) -> Vector:
        """Do as STC does, and add up what it returns."""
        update = super().combine(total, weight)
        self.accepted = self.accepted + update.astype(np.float64)
        return update

    def on_rejected(self, node_id: int, error: ReplyError) -> None:
        """Do as STC does, and count requests for the full model."""
        super().on_rejected(node_id, error)
        self.model_requests += isinstance(error, ModelNeededError)


def train(
    grid: DisturbedGrid, strategy: FederatedStrategy[Any]
) -> tuple[ArrayRecord, TrainingResult]:
    """Return the initial model and the result of the run of ``grid.config``."""
    config = grid.config
    task = load_task(config)
    data = task.dataset(config.data_options)
    initial = ArrayRecord(task.initial_model(config.seed).state_dict())
    strategy.settings = run_settings(config, tasks.load(config.task))
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
    strategy = SummingSTC()
    initial, result = train(grid, strategy)
    assert result.model is not None
    assert strategy.residual is not None
    change = _flat(result.model) - _flat(initial)
    tested = [metrics.accuracy for metrics in result.history if metrics.accuracy is not None]
    return {
        "final accuracy": tested[-1],
        "best accuracy": max(tested),
        "replies dropped": grid.num_dropped,
        "restarts": grid.num_restarts,
        "asked for the full model": strategy.model_requests,
        "largest error of the sums": np.abs(strategy.accepted - change - strategy.residual).max(),
    }


def compare(rounds: int, **keys: Any) -> dict[str, dict[str, float]]:
    """Return the figures of the undisturbed and the disturbed run."""
    values = {
        "task": "mnist-logistic", "strategy": "stc", "num-clients": 100, "local-steps": 1,
        "batch-size": 20,
        "learning-rate": 0.04, "num-server-rounds": rounds, "evaluate-every": max(rounds // 20, 1),
        "target-accuracy": 0.0, "partition": "classes", **keys,
    }  # fmt: skip
    config = RunConfig(**values)
    return {
        "undisturbed": run(DisturbedGrid(config)),
        "disturbed": run(DisturbedGrid(config, drop_rate=0.2, restart_rate=0.05)),
    }


def _flat(arrays: ArrayRecord) -> NDArray[np.float64]:
    """Return all entries of the model, in float64."""
    parts = [array.reshape(-1) for array in from_record(arrays).values()]
    return np.concatenate(parts).astype(np.float64)


def main() -> None:
    """Print both runs' figures."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data-dir", default="", help="canonical MNIST files; else the default")
    parser.add_argument("--rounds", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    logging.getLogger("fedavg_app").setLevel(logging.ERROR)  # thousands of dropped replies
    figures = compare(given.rounds, **{"data-dir": given.data_dir, "seed": given.seed})
    for name, values in figures.items():
        print(name)
        for key, value in values.items():
            print(f"  {key:26} {value:.6g}")


if __name__ == "__main__":
    main()
