"""Centralised SGD on the pooled data: the baseline that every federated curve is drawn next to.

A round is one step of SGD, as the FedAvg paper counts it (arXiv 1602.05629v4, table 3): a server
that had its data on clients would have to communicate after each.
"""

import math
import time
from collections.abc import Iterator, Sequence
from itertools import count, islice

import torch
from torch import Tensor, nn

from fedavg_app.config import CentralConfig
from fedavg_app.errors import RunError
from fedavg_app.evaluation import CentralTest, pick_device
from fedavg_app.history import Listen, RoundRecord, with_totals
from fedavg_app.plan import make_plan
from fedavg_app.recording import Recording
from fedavg_app.rounds import Outcome, conclude
from strategies.aggregation import Arrays
from strategies.arrays import to_record
from tasks.base import Examples, Task
from tasks.client import Config, TaskClient, Velocity
from tasks.seeds import integer, torch_stream


def train(config: CentralConfig, task: Task, listeners: Sequence[Listen] = ()) -> Outcome:
    """Train the task's model on all training examples; results are in a new folder afterwards.

    Args:
        config: The training's settings.
        task: The learning problem that it names.
        listeners: See `Recording`.

    Raises:
        ConfigError: A value that cannot be used.
        DataError: The data set cannot be had.
        RunError: The loss is no longer finite.
    """
    torch.set_num_threads(config.num_threads)
    data = task.dataset(config.data_options)
    plan = make_plan(config, task)
    test = CentralTest(task, data, config)
    device = pick_device(config.device)
    model = task.initial_model(config.seed).to(device)
    examples = Examples.stored(task, data.train, device, training=True)
    client = TaskClient(task, model, examples)
    batches = _batches(examples, config)
    # As in a federated run the rate decays after every round, which is a step here.
    rates = map(plan.rate, count(1))
    local: Config = {"momentum": config.momentum}
    velocity: Velocity = {}

    def tested(step: int, started: float, loss: float | None = None) -> RoundRecord:
        test_loss, accuracy = test(to_record(_arrays(model)))
        record = RoundRecord(
            step,
            learning_rate=plan.rate(step) if step else None,
            train_loss=loss,
            test_loss=test_loss,
            accuracy=accuracy,
            seconds=time.monotonic() - started,
        )
        return with_totals(record, record)  # nothing is sent

    recording = Recording(config, task, plan, data, listeners=listeners)
    with recording, torch.random.fork_rng(devices=[]):
        torch.manual_seed(integer(config.seed, "local"))
        records = [tested(0, time.monotonic())]
        recording.add(records[0])
        while (step := records[-1].round) < plan.num_rounds:
            started = time.monotonic()
            steps = min(plan.evaluate_every, plan.num_rounds - step)
            loss = client.descend(islice(batches, steps), rates, local, velocity)
            if not math.isfinite(loss):
                raise RunError(
                    f"the loss is not finite after step {step + steps}; give a smaller "
                    f"learning-rate than {plan.learning_rate:g}"
                )
            records.append(tested(step + steps, started, loss))
            recording.add(records[-1])
            if plan.reached(records[-1].accuracy):
                break
        outcome = conclude(to_record(_arrays(model)), records, plan)
        recording.finish(outcome)
    return outcome


def _batches(examples: Examples, config: CentralConfig) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield batches without end: all examples in a new order, then all in another, and so on."""
    for epoch in count(1):
        order = torch_stream(config.seed, "batches", epoch)
        yield from examples.shuffled(order).batches(config.batch_size)


def _arrays(model: nn.Module) -> Arrays:
    return {name: array.cpu().numpy() for name, array in model.state_dict().items()}
