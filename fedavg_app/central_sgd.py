"""Centralised SGD on the pooled data: the baseline for federated curves.

A round is one step of SGD, as the FedAvg paper counts it (arXiv 1602.05629v4, table 3): a server
whose data are on clients would have to communicate after each.
"""

import math
import time
from collections.abc import Iterator, Sequence
from itertools import count, islice

import torch
from flwr.app import ArrayRecord
from torch import Tensor, nn

from fedavg_app.callbacks.base import MakeCallback, TrainingRun
from fedavg_app.callbacks.training_callbacks import TrainingCallbacks
from fedavg_app.config import CentralConfig
from fedavg_app.errors import ConfigError, DivergedError
from fedavg_app.results.history import RoundMetrics, TrainingResult, test_scores
from fedavg_app.server.global_evaluation import VALIDATION, CentralEvaluation
from fedavg_app.server.global_model import GlobalModel
from fedavg_app.server.preparation import check_task, load_data
from fedavg_app.training_plan import make_plan
from strategies.rounds.flower_arrays import to_record
from tasks.base import Task
from tasks.model_arrays import ModelArrays, read_arrays, state_of
from tasks.training.batch_size import normalises_batches
from tasks.training.examples import Examples
from tasks.training.optimizer_steps import take_steps
from tasks.training.optimizers import Memory
from tasks.training.random_streams import derive_seed, seeded, torch_generator
from tasks.training.training_settings import TrainingSettings


def train_centrally(
    config: CentralConfig, task: Task, callbacks: Sequence[MakeCallback] = ()
) -> TrainingResult:
    """Train the task's model on all training examples; results are in a new folder afterwards.

    Args:
        config: The training's settings.
        task: The learning problem that it names.
        callbacks: Make further callbacks, beside the run's files and the console.

    Raises:
        ConfigError: A value that cannot be used, or an array of the model that cannot be saved.
        DataError: The data set is not available.
        DivergedError: The loss is no longer finite.
    """
    if task.train is not None:
        fix = "it has its own training loop, which only clients run: use run, not central"
        raise ConfigError("task", config.task, fix)
    torch.set_num_threads(config.num_threads)
    GlobalModel.initial(task, config)  # refuses arrays that cannot be saved
    data = load_data(config, task)
    check_task(config, task, data)
    plan = make_plan(config, task, data)
    evaluate, validate = CentralEvaluation(task, data, config), None
    if data.validation is not None:
        validate = CentralEvaluation(task, data, config, VALIDATION)
    device = config.torch_device
    model = task.network(config.seed, device)
    examples = task.examples(data.train, device, training=True)
    arrays = ModelArrays.of(model)
    batches = _batches(examples, config, no_single=normalises_batches(model))
    # As in a federated run the rate decays after every round, which is a step here.
    rates = map(plan.rate, count(1))
    local = TrainingSettings(**{**dict(plan.work), "learning_rate": plan.learning_rate})
    memory: Memory = {}

    def metrics_after(step: int, started: float, loss: float | None = None) -> RoundMetrics:
        return RoundMetrics(
            step,
            learning_rate=plan.rate(step) if step else None,
            train_loss=loss,
            **test_scores(evaluate(_record(model)), validate(_record(model)) if validate else None),
            seconds=time.monotonic() - started,
        ).with_totals(None)  # nothing is sent

    run = TrainingRun(config, task, plan, data, local_work=config.local_work)
    with (
        TrainingCallbacks(run, callbacks) as training,
        seeded(derive_seed(config.seed, "local"), device),
    ):
        history = training.result.history
        training.on_round_end(metrics_after(0, time.monotonic()), _record(model))
        while not plan.ends_after(history):
            step = history[-1].round
            started = time.monotonic()
            steps = min(config.evaluate_every, plan.num_rounds - step)
            due = islice(batches, steps)
            loss = take_steps(task, model, arrays, due, rates, local, memory)
            if not math.isfinite(loss):
                raise DivergedError(
                    f"the loss is not finite after step {step + steps}; give a smaller "
                    f"learning-rate than {plan.learning_rate:g}"
                )
            training.on_round_end(metrics_after(step + steps, started, loss), _record(model))
    return training.result


def _batches(
    examples: Examples, config: CentralConfig, *, no_single: bool
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield batches without end: all examples in a new order for every epoch."""
    for epoch in count(1):
        order = torch_generator(config.seed, "batches", epoch)
        yield from examples.shuffled(order).batches(config.batch_size, no_single=no_single)


def _record(model: nn.Module) -> ArrayRecord:
    return to_record(read_arrays(model, tuple(state_of(model))))
