"""A client's end of the learning problem: its task, its model and its examples.

Apart from `fedavg_app.client_app` because it imports torch, which takes seconds, and on a SuperNode
every message starts a new process: who only answers a query need not wait for it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn

import tasks
from fedavg_app.config import RunConfig, parse_config
from fedavg_app.evaluation import pick_device
from fedavg_app.nodes import DATA_DIR, PARTITION_ID
from fedavg_app.partitions import partition
from tasks.base import Examples, Task
from tasks.client import Config, TaskClient
from tasks.data.store import DataOptions


def task_client(
    node_config: Mapping[str, Any], run_config: Mapping[str, Any], config: Config
) -> TaskClient:
    """Return the task client of one node.

    Args:
        node_config: Names its partition; optionally its threads and the directory of its own data.
        run_config: See `RunConfig`.
        config: What the server's message names: which data set exactly to load.

    Raises:
        ConfigError: The data cannot be split as the run config says.
        DataError: The data set cannot be had.
    """
    # One thread per client: as many clients as cores run at once, and the order of summation,
    # hence every bit of the result, does not depend on the machine.
    torch.set_num_threads(int(node_config.get("threads", 1)))
    own = str(node_config.get(DATA_DIR, ""))
    options = DataOptions(str(config["data-source"]), str(config.get("data-dir", "")))
    problem = _problem(
        _run_config(tuple(run_config.items())),
        DataOptions(directory=own, own=True) if own else options,
        shared=not own,
    )
    return problem.client(int(node_config[PARTITION_ID]))


@dataclass(frozen=True)
class _Problem:
    """What all clients of a run share in one process: nothing in here is a client's own.

    Attributes:
        task: The learning problem.
        model: The one model that all of them take turns on.
        splits: Training and test examples as stored, on the device, with every client's rows among
            them, None where they are one client's own; None for test examples that the run has no
            use for.
    """

    task: Task
    model: nn.Module
    splits: tuple[tuple[Examples, list[Tensor] | None] | None, ...]

    def client(self, number: int) -> TaskClient:
        """Return the task client of one partition."""
        train, test = (
            split and replace(split[0], rows=None if split[1] is None else split[1][number])
            for split in self.splits
        )
        return TaskClient(self.task, self.model, train, test, partition=number)


@lru_cache(maxsize=2)
def _problem(config: RunConfig, options: DataOptions, *, shared: bool) -> _Problem:
    """Load the data; clients share them out by the run's partition, unless they are one's own."""
    task = tasks.load(config.task)
    data = task.dataset(options)
    device = pick_device(config.device)
    splits: list[tuple[Examples, list[Tensor] | None] | None] = []
    for name, split in (("train", data.train), ("test", data.test)):
        if name == "test" and config.fraction_evaluate == 0:
            splits.append(None)
            continue
        examples = Examples.stored(task, split, device, training=name == "train")
        rows = None
        if shared:
            parts = partition(data, name, config)
            rows = [torch.from_numpy(part).to(device) for part in parts]
        splits.append((examples, rows))
    return _Problem(task, task.model().to(device), tuple(splits))


@lru_cache(maxsize=2)
def _run_config(items: tuple[tuple[str, Any], ...]) -> RunConfig:
    return parse_config(dict(items))
