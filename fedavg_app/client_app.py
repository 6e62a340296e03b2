"""The ClientApp: Flower's messages on one side, a task's client on the other.

On the wire this is a plain Message-API app: records "arrays" and "config" in, "arrays" and
"metrics" out, so any Message-API strategy can drive it. A strategy that changes what is sent puts
its own mod around these handlers.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedavg_app.client.mods import with_mods
from fedavg_app.client_settings import (
    DATA_DIGEST,
    OWN_DATA,
    OWN_EXAMPLES,
    PARTITION_DIGEST,
    PARTITION_ID,
    own_data,
)
from strategies.rounds.flower_arrays import find_record, from_record, get_record, to_record
from strategies.rounds.messages import ARRAYS, CONFIG, GRADIENT_OFFSET, METRICS, NUM_EXAMPLES
from tasks.training.training_settings import TrainingSettings

if TYPE_CHECKING:
    from tasks.model_arrays import Arrays
    from tasks.training.local_training import TaskClient
    from tasks.training.optimizers import Memory

app = ClientApp()

# The records of a client's state that keep its momentum, what another optimiser keeps, or a task's
# own loop, from round to round.
MOMENTUM, OPTIMIZER, OWN_LOOP = "momentum", "optimizer", "own-loop"


@app.query()
def query(message: Message, context: Context) -> Message:
    """Reply with the node's partition, and the fingerprint and number of own data.

    To a query with the run's settings the reply has digests of the data and of the partition, too,
    as this process has them.

    Raises:
        ValueError: The node config names no partition, or its data cannot be loaded.
    """
    number = context.node_config.get(PARTITION_ID)
    if isinstance(number, bool) or not isinstance(number, int):
        raise ValueError(f'start this SuperNode with --node-config "{PARTITION_ID}=<number>"')
    node = ConfigRecord({PARTITION_ID: number})
    if directory := own_data(context.node_config):
        # Not at the top: it imports torch.
        from fedavg_app.client.client_process import own_dataset

        data = own_dataset(directory, context.run_config)
        node[OWN_DATA], node[OWN_EXAMPLES] = data.fingerprint, len(data.train)
    elif CONFIG in message.content:
        from fedavg_app.client.client_process import client_process

        found = client_process(context.node_config, context.run_config, _config(message)).digests
        node[DATA_DIGEST], node[PARTITION_DIGEST] = found.data, found.partition
    return Message(RecordDict({"node": node}), reply_to=message)


@app.train()
@with_mods
def train(message: Message, context: Context) -> Message:
    """Train the received model on the local examples."""
    client, arrays, settings = _read(message, context)
    record = find_record(message.content, GRADIENT_OFFSET, ArrayRecord)
    offset = None if record is None else from_record(record)
    initial = {}
    if settings.initial_loss:
        initial["initial-loss"] = client.training_loss(arrays, settings.seed)[1]
    with _optimizer_state(context, settings, client) as memory:
        trained, count, metrics = client.train(arrays, settings, memory, offset)
    return _reply(message, trained, count, initial | metrics)


@app.train("gradient")
@with_mods
def gradient(message: Message, context: Context) -> Message:
    """Compute the gradient of the whole local loss at the received model."""
    client, arrays, settings = _read(message, context)
    with _optimizer_state(context, settings, client) as memory:
        return _reply(message, *client.gradient(arrays, settings, memory))


@app.evaluate()
@with_mods
def evaluate(message: Message, context: Context) -> Message:
    """Evaluate the received model, or what local steps make of it, on the local test examples."""
    client, arrays, settings = _read(message, context)
    from fedavg_app.client.metric_states import STATES, write_states
    from tasks.training.evaluation import combine

    if settings.evaluate_after_steps:
        arrays = client.fine_tuned(arrays, settings)
    results, count = client.test(arrays, settings.seed), client.num_test_examples
    scores = combine(client.task.test_metrics(), results, of_client=True)
    reply = _reply(message, None, count, {"loss": scores.loss, **scores.metrics})
    if (states := write_states(results, count)) is not None:
        reply.content[STATES] = states
    return reply


@app.evaluate("training_loss")
@with_mods
def training_loss(message: Message, context: Context) -> Message:
    """Return the loss of the received model on the local training examples."""
    client, arrays, settings = _read(message, context)
    count, loss = client.training_loss(arrays, settings.seed)
    return _reply(message, None, count, {"loss": loss})


@contextmanager
def _optimizer_state(
    context: Context, settings: TrainingSettings, client: "TaskClient"
) -> "Iterator[Memory | None]":
    """Yield the state of the optimiser or the task's own loop, and store it afterwards.

    The state changes last, and not at all if the work inside raises or nothing is to be kept. A
    client that lost its state begins anew.
    """
    has_loop = client.task.train is not None
    if not settings.keeps_memory and not has_loop:
        yield None
        return
    key = OWN_LOOP if has_loop else MOMENTUM if settings.is_sgd else OPTIMIZER
    memory = from_record(find_record(context.state, key, ArrayRecord) or ArrayRecord())
    yield memory

    if memory or not has_loop:
        context.state[key] = to_record(memory)


def _read(message: Message, context: Context) -> "tuple[TaskClient, Arrays, TrainingSettings]":
    """Return this node's task client, the model's arrays, and the local work."""
    # Not at the top: it imports torch.
    from fedavg_app.client.client_process import task_client

    config = _config(message)
    client = task_client(context.node_config, context.run_config, config)
    arrays = from_record(get_record(message.content, ARRAYS, ArrayRecord))
    return client, arrays, TrainingSettings.of(config)


def _config(message: Message) -> dict[str, Any]:
    """Return the settings that the server sent."""
    record = get_record(message.content, CONFIG, ConfigRecord)
    return {key: value for key, value in record.items() if not isinstance(value, list)}


def _reply(
    message: Message, updated: "Arrays | None", count: int, metrics: dict[str, float]
) -> Message:
    """Return the reply with the updated arrays and the metrics."""
    scalars = {key: value for key, value in metrics.items() if isinstance(value, int | float)}
    content = RecordDict({METRICS: MetricRecord({**scalars, NUM_EXAMPLES: count})})
    if updated is not None:
        content[ARRAYS] = to_record(updated)
    return Message(content, reply_to=message)
