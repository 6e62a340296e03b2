"""The ClientApp: Flower's messages on one side, a task's `NumPyClient` on the other.

On the wire this is a plain Message-API app: records "arrays" and "config" in, "arrays" and
"metrics" out, so any Message-API strategy can drive it. A strategy that changes what travels puts
its own mod around these handlers; they never know.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch import nn

import tasks
from fedavg_app.config import RunConfig, arguments, parse_config
from fedavg_app.mods import with_mods
from fedavg_app.nodes import PARTITION_ID
from fedavg_app.partitions import partition
from strategies.screening import ARRAYS, CONFIG, METRICS, NUM_EXAMPLES
from tasks.base import Examples, Parameters
from tasks.client import Config, TaskClient, Velocity
from tasks.data.store import DataOptions, Dataset

app = ClientApp()

# Clients whose prepared examples one process keeps; the rest are prepared again when needed.
KEPT_CLIENTS = 128
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
    client, arrays, config = _open(message, context)
    with _velocity(context, config) as velocity:
        return _reply(message, arrays, *client.fit(arrays.to_numpy_ndarrays(), config, velocity))


@app.train("gradient")
@with_mods
def gradient(message: Message, context: Context) -> Message:
    """Compute the gradient of the whole local loss at the received model."""
    client, arrays, config = _open(message, context)
    with _velocity(context, config) as velocity:
        found = client.gradient(arrays.to_numpy_ndarrays(), config, velocity)
        return _reply(message, arrays, *found)


@app.evaluate()
@with_mods
def evaluate(message: Message, context: Context) -> Message:
    """Evaluate the received model on the local test examples."""
    client, arrays, config = _open(message, context)
    loss, count, metrics = client.evaluate(arrays.to_numpy_ndarrays(), config)
    return _reply(message, arrays, None, count, {"loss": loss, **metrics})


def _open(message: Message, context: Context) -> tuple[TaskClient, ArrayRecord, Config]:
    """Return this node's task client, and what the message carries for it."""
    # One thread per client: as many clients as cores run at once, and the order of summation,
    # hence every bit of the result, does not depend on the machine.
    torch.set_num_threads(int(context.node_config.get("threads", 1)))
    config: Config = {
        key: value
        for key, value in message.content.config_records[CONFIG].items()
        if not isinstance(value, list)
    }
    options = DataOptions(str(config["data-source"]), str(config.get("data-dir", "")))
    number = int(context.node_config[PARTITION_ID])
    client = _client(parse_config(context.run_config), options, number)
    return client, message.content.array_records[ARRAYS], config


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
    kept = context.state.array_records.get(MOMENTUM, ArrayRecord())
    velocity = {name: array.numpy() for name, array in kept.items()}
    yield velocity
    finite = {name: buffer for name, buffer in velocity.items() if np.isfinite(buffer).all()}
    context.state[MOMENTUM] = ArrayRecord({name: Array(buffer) for name, buffer in finite.items()})


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
        named = {name: Array(array) for name, array in zip(names, updated, strict=True)}
        content[ARRAYS] = ArrayRecord(named)
    return Message(content, reply_to=message)


@lru_cache(maxsize=KEPT_CLIENTS)
def _client(config: RunConfig, options: DataOptions, number: int) -> TaskClient:
    """Return the task client of one partition: its examples prepared, on its device."""
    task = tasks.load(config.task)
    data = _dataset(config.task, options)
    device = pick_device(config.device)
    splits: list[Examples | None] = []
    for name, split in (("train", data.train), ("test", data.test)):
        if name == "test" and config.fraction_evaluate == 0:
            splits.append(None)
            continue
        # The same seed cuts both splits alike: a client's test examples have the classes of its
        # training examples.
        chosen = partition(
            split.targets,
            f"{data.fingerprint}-{name}",
            config.partition,
            arguments("partition-args", config.partition_args),
            config.num_clients,
            config.seed,
        )[number]
        inputs = task.prepare(split.inputs[chosen]).to(device)
        targets = torch.from_numpy(np.array(split.targets[chosen])).to(device)
        splits.append(Examples(inputs, targets))
    return TaskClient(task, _model(config.task, str(device)), *splits, partition=number)


@lru_cache(maxsize=2)
def _dataset(task: str, options: DataOptions) -> Dataset:
    """Return the data set, read and checked once in this process."""
    return tasks.load(task).dataset(options)


@lru_cache(maxsize=2)
def _model(task: str, device: str) -> nn.Module:
    """Return the one model that all clients of this process take turns on."""
    return tasks.load(task).model().to(device)


def pick_device(name: str) -> torch.device:
    """Return the device for "auto" (the GPU if this process sees one), "cpu" or "cuda"."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)
