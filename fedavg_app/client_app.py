"""The ClientApp: Flower's messages on one side, a task's `NumPyClient` on the other.

On the wire this is a plain Message-API app: records "arrays" and "config" in, "arrays" and
"metrics" out, so any Message-API strategy can drive it. A strategy that changes what travels puts
its own mod around these handlers; they never know.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedavg_app.mods import with_mods
from fedavg_app.nodes import PARTITION_ID
from strategies.arrays import from_record, to_record
from strategies.records import find, get
from strategies.screening import ARRAYS, CONFIG, METRICS, NUM_EXAMPLES

if TYPE_CHECKING:
    from tasks.base import Parameters
    from tasks.client import Config, TaskClient, Velocity

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


def _open(message: Message, context: Context) -> "tuple[TaskClient, list[str], Parameters, Config]":
    """Return this node's task client, and what the message carries: named arrays, and config."""
    # Not before there is something to compute: see there.
    from fedavg_app.problem import task_client

    config: Config = {
        key: value
        for key, value in get(message.content, CONFIG, ConfigRecord).items()
        if not isinstance(value, list)
    }
    client = task_client(context.node_config, context.run_config, config)
    arrays = from_record(get(message.content, ARRAYS, ArrayRecord))
    return client, list(arrays), list(arrays.values()), config


@contextmanager
def _velocity(context: Context, config: "Config") -> "Iterator[Velocity | None]":
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
    updated: "Parameters | None",
    count: int,
    metrics: "Config",
) -> Message:
    """Return the reply with the updated arrays under the names they came with, and the metrics."""
    scalars = {key: value for key, value in metrics.items() if isinstance(value, int | float)}
    content = RecordDict({METRICS: MetricRecord({**scalars, NUM_EXAMPLES: count})})
    if updated is not None:
        named = dict(zip(names, updated, strict=True))
        content[ARRAYS] = to_record(named)
    return Message(content, reply_to=message)
