"""The task and the strategy that a config names, checked before anything else is begun."""

import math

import torch

import strategies
import tasks
from fedavg_app.config import RunConfig, TrainingConfig, arguments, check_names, check_source
from fedavg_app.errors import ConfigError
from fedavg_app.mods import load_mods
from fedavg_app.sampling import cohort_size
from strategies.base import CohortStrategy
from strategies.foreign import Screened
from strategies.limits import Limits
from tasks.base import Task


def load_task(config: TrainingConfig) -> Task:
    """Return the task that the config names.

    Raises:
        ConfigError: It is unknown, or data source or device cannot be what the config says.
    """
    check_source(config)
    try:
        task = tasks.load(config.task)
    except ValueError as error:
        raise ConfigError("task", config.task, str(error)) from error
    if config.device == "cuda" and not torch.cuda.is_available():
        raise ConfigError("device", "cuda", "no CUDA device here; give auto or cpu")
    return task


def load_parts(config: RunConfig) -> tuple[Task, CohortStrategy | Screened]:
    """Return the task and the strategy that the config names.

    Raises:
        ConfigError: As for `load_task`, the strategy is unknown or refuses its arguments, a client
            mod cannot be had, the task's data cannot be split in that way, or a round needs more
            replies than it has clients.
    """
    check_names(config)
    task = load_task(config)
    try:
        chosen = arguments("strategy-args", config.strategy_args)
        strategy = strategies.build(config.strategy, chosen, find_limits(config))
    except ConfigError:
        raise
    except ValueError as error:
        raise ConfigError("strategy-args", config.strategy_args, str(error)) from error
    load_mods(config.client_mods)
    check_scheme(config, task)
    return task, strategy


def find_limits(config: RunConfig) -> Limits:
    """Return what the config lets clients do.

    Raises:
        ConfigError: A round needs more replies than it has clients.
    """
    clients = cohort_size(config.fraction_train, config.num_clients)
    if config.min_replies > clients:
        fix = f"a round has {clients} clients; give at most {clients}, or a larger fraction-train"
        raise ConfigError("min-replies", config.min_replies, fix)
    return Limits(config.max_examples, config.max_update_norm or math.inf, config.min_replies)


def check_scheme(config: RunConfig, task: Task) -> None:
    """Check that the task's data can be split in that way.

    Raises:
        ConfigError: They cannot.
    """
    if config.partition not in task.partitions:
        known = ", ".join(task.partitions)
        raise ConfigError("partition", config.partition, f"{task.name} can be split by: {known}")
