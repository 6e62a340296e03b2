"""STC when devices misbehave: replies that never arrive, clients that lose their memory.

Trains logistic regression on MNIST twice from one seed, undisturbed and with 20 % of the replies
dropped at random and, in every round, 5 % of the participants restarted without their state, and
checks the books: the mean updates that the server accepted must sum to the change of the global
model plus the server's residual.

    python -m benchmarks.stc_disturbed --data-dir /path/to/mnist --rounds 2000
"""

import argparse
import logging
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Context, Message, RecordDict

from fedavg_app.client_app import app
from fedavg_app.config import RunConfig
from fedavg_app.evaluation import CentralTest
from fedavg_app.internals import BaseGrid, error_reply, identify_server, stamp
from fedavg_app.nodes import Roster
from fedavg_app.parts import load_parts
from fedavg_app.plan import make_plan
from fedavg_app.rounds import Outcome, run_rounds
from fedavg_app.server_app import client_config
from strategies.base import CohortStrategy
from strategies.compression.update import Update, mean
from strategies.stc import STC
from strategies.weighting import reply_weights
from tasks.seeds import stream

FIRST_NODE = 2


class DisturbedGrid(BaseGrid):
    """Runs the real ClientApp in this process; loses replies and clients' memory at random."""

    def __init__(self, config: RunConfig, dropped: float, forgetting: float) -> None:
        identify_server(1)
        self.config, self.dropped, self.forgetting = config, dropped, forgetting
        self.contexts = [self._context(client) for client in range(config.num_clients)]
        self.rng = stream(config.seed, "disturbance")
        self.lost = self.restarts = 0
        self._replies: dict[str, Message] = {}

    def _context(self, client: int) -> Context:
        node = {"partition-id": client, "num-partitions": self.config.num_clients}
        run_config = self.config.model_dump(by_alias=True)
        return Context(1, FIRST_NODE + client, node, RecordDict(), run_config)

    def get_node_ids(self) -> list[int]:
        """Return one node id per client."""
        return [context.node_id for context in self.contexts]

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        """Run the messages' clients, and lose some of what they know and say."""
        ids = []
        for message in messages:
            ids.append(stamp(message))
            client = message.metadata.dst_node_id - FIRST_NODE
            training = message.metadata.message_type == "train"
            if training and self.rng.random() < self.forgetting:
                self.contexts[client] = self._context(client)
                self.restarts += 1
            try:
                reply = app(message, self.contexts[client])
            except Exception as error:
                reply = error_reply(message, str(error))
            if training and self.rng.random() < self.dropped:
                reply = error_reply(message, "dropped")
                self.lost += 1
            self._replies[ids[-1]] = reply
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        """Return the replies."""
        return [self._replies.pop(i) for i in list(message_ids) if i in self._replies]


class BookkeepingSTC(STC):
    """STC that adds up the clients' mean updates, as it accepts them, in float64."""

    def combine(self, updates: Sequence[Update], replies: Sequence[Message]) -> Update:
        """Do as STC does, and keep account."""
        self.accepted = getattr(self, "accepted", 0.0) + mean(
            updates, reply_weights(replies, self.weights)
        ).astype(np.float64)
        return super().combine(updates, replies)


def train(grid: DisturbedGrid, strategy: CohortStrategy) -> tuple[ArrayRecord, Outcome]:
    """Return the initial model and the outcome of the run of ``grid.config``."""
    config = grid.config
    task, _ = load_parts(config)
    data = task.dataset(config.data_options)
    initial = ArrayRecord(task.initial_model(config.seed).state_dict())
    roster = Roster(grid, config.num_clients)
    roster.assemble()
    outcome = run_rounds(
        grid, strategy, initial, roster, make_plan(config, task),
        client_config(config, data), CentralTest(task, data, config), lambda *_: None,
    )  # fmt: skip
    return initial, outcome


def run(grid: DisturbedGrid) -> tuple[Outcome, float]:
    """Return the outcome, and by how much the books are off in their worst entry."""
    strategy = BookkeepingSTC()
    initial, outcome = train(grid, strategy)
    moved = _flat(outcome.arrays) - _flat(initial)
    assert strategy.residual is not None
    return outcome, float(np.abs(strategy.accepted - moved - strategy.residual).max())


def compare(rounds: int, **keys: Any) -> dict[str, dict[str, float]]:
    """Return figures of the undisturbed and the disturbed run."""
    values = {
        "task": "mnist-logistic", "strategy": "stc", "local-steps": 1, "batch-size": 20,
        "learning-rate": 0.04, "num-server-rounds": rounds, "evaluate-every": max(rounds // 20, 1),
        "target-accuracy": 0.0, "partition": "classes", **keys,
    }  # fmt: skip
    config = RunConfig(**values)
    figures = {}
    for name, dropped, forgetting in (("undisturbed", 0.0, 0.0), ("disturbed", 0.2, 0.05)):
        grid = DisturbedGrid(config, dropped, forgetting)
        outcome, off = run(grid)
        tested = [record.accuracy for record in outcome.records if record.accuracy is not None]
        figures[name] = {
            "final accuracy": tested[-1],
            "best accuracy": max(tested),
            "replies dropped": grid.lost,
            "restarts": grid.restarts,
            "asked for the full model": sum(
                "forgotten" in reason
                for record in outcome.records
                for reason in record.rejected.values()
            ),
            "largest error of the sums": off,
        }
    return figures


def _flat(arrays: ArrayRecord) -> np.ndarray:
    return np.concatenate([array.numpy().reshape(-1) for array in arrays.values()])


def main() -> None:
    """Print both runs' figures."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data-dir", default="", help="canonical MNIST files; else the default")
    parser.add_argument("--rounds", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    logging.getLogger("fedavg_app").setLevel(logging.ERROR)  # thousands of lost replies
    figures = compare(given.rounds, **{"data-dir": given.data_dir, "seed": given.seed})
    for name, values in figures.items():
        print(name)
        for key, value in values.items():
            print(f"  {key:26} {value:.6g}")


if __name__ == "__main__":
    main()
