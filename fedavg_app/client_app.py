"""The ClientApp: Flower's messages on one side, a task's `NumPyClient` on the other.

On the wire this is a plain Message-API app: records "arrays" and "config" in, "arrays" and
"metrics" out, so any Message-API strategy can drive it. A strategy that changes what travels puts
its own mod around these handlers; they never know.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch import Tensor, nn

import tasks
from fedavg_app.config import RunConfig, parse_config
from fedavg_app.evaluation import pick_device
from fedavg_app.mods import with_mods
from fedavg_app.nodes import DATA_DIR, PARTITION_ID
from fedavg_app.partitions import partition
from strategies.arrays import from_record, to_record
from strategies.records import find, get
from strategies.screening import ARRAYS, CONFIG, METRICS, NUM_EXAMPLES
from tasks.base import Examples, Parameters, Task
from tasks.client import Config, TaskClient, Velocity
from tasks.data.store import DataOptions

app = ClientApp()

# Where a client's state keeps its momentum from one round to the next.
MOMENTUM = "momentum"


@app.query()
def query(message: Message, context: Context) -> Message:
    """Say which partition this node holds."""
    number = context.node_config.get(PARTITION_ID)
    if isinstance(number, bool) or not isinstance(number, int):
        raise ValueError(f'start this SuperNode with --node-config "{PARTITION_ID}=<number>"')
    node = ConfigRecord({PARTITION_ID: number})
    return Message(RecordDict({"node": node}), reply_to=message)


@app.train()
@with_mods
def train(message: Message, context: Context) -> Message:
    """Train the received model on the local examples."""
    client, names, parameters, config = _open(message, context)
    with _velocity(context, config) as velocity:
        return _reply(message, names, *client.fit(parameters, config, velocity))


@app.train("gradient")
@with_mods
def gradient(message: Message, context: Context) -> Message:
    """Compute the gradient of the whole local loss at the received model."""
    client, names, parameters, config = _open(message, context)
    with _velocity(context, config) as velocity:
        found = client.gradient(parameters, config, velocity)
        return _reply(message, names, *found)


@app.evaluate()
@with_mods
def evaluate(message: Message, context: Context) -> Message:
    """Evaluate the received model on the local test examples."""
    client, names, parameters, config = _open(message, context)
    loss, count, metrics = client.evaluate(parameters, config)
    return _reply(message, names, None, count, {"loss": loss, **metrics})


def _open(message: Message, context: Context) -> tuple[TaskClient, list[str], Parameters, Config]:
    """Return this node's task client, and what the message carries: named arrays, and config."""
    # One thread per client: as many clients as cores run at once, and the order of summation,
    # hence every bit of the result, does not depend on the machine.
    torch.set_num_threads(int(context.node_config.get("threads", 1)))
    config: Config = {
        key: value
        for key, value in get(message.content, CONFIG, ConfigRecord).items()
        if not isinstance(value, list)
    }
    own = str(context.node_config.get(DATA_DIR, ""))
    options = DataOptions(str(config["data-source"]), str(config.get("data-dir", "")))
    problem = _problem(
        _run_config(tuple(context.run_config.items())),
        DataOptions(directory=own, own=True) if own else options,
        shared=not own,
    )
    client = problem.client(int(context.node_config[PARTITION_ID]))
    arrays = from_record(get(message.content, ARRAYS, ArrayRecord))
    return client, list(arrays), list(arrays.values()), config


@contextmanager
def _velocity(context: Context, config: Config) -> Iterator[Velocity | None]:
    """Yield what the client's state holds of its momentum; keep what becomes of it.

    The state changes last, and not at all if the work inside raises or there is no momentum. A
    client that lost its state begins with none, which is zero. So does a buffer that is not finite:
    NaN would stay in it for ever, whatever model the server sends.
    """
    if not config.get("momentum"):
        yield None
        return
    kept = find(context.state, MOMENTUM, ArrayRecord) or ArrayRecord()
    velocity = from_record(kept)
    yield velocity
    finite = {name: buffer for name, buffer in velocity.items() if np.isfinite(buffer).all()}
    context.state[MOMENTUM] = to_record(finite)


def _reply(
    message: Message,
    names: Iterable[str],
    updated: Parameters | None,
    count: int,
    metrics: Config,
) -> Message:
    """Return the reply with the updated arrays under the names they came with, and the metrics."""
    scalars = {key: value for key, value in metrics.items() if isinstance(value, int | float)}
    content = RecordDict({METRICS: MetricRecord({**scalars, NUM_EXAMPLES: count})})
    if updated is not None:
        named = dict(zip(names, updated, strict=True))
        content[ARRAYS] = to_record(named)
    return Message(content, reply_to=message)


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
