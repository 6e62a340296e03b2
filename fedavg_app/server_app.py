"""The ServerApp: config -> task and strategy -> rounds -> artefacts."""

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context
from flwr.serverapp import Grid, ServerApp

import strategies
import tasks
from fedavg_app.artifacts import RunDirectory
from fedavg_app.config import RunConfig, arguments, check_names, parse_config
from fedavg_app.errors import USER_ERRORS, ConfigError
from fedavg_app.evaluation import CentralTest, Evaluate
from fedavg_app.history import RoundRecord
from fedavg_app.mods import load_mods
from fedavg_app.nodes import find_nodes
from fedavg_app.partitions import check_partition
from fedavg_app.plots import plot_run
from fedavg_app.progress import RoundProgress
from fedavg_app.rounds import Outcome, Plan, run_rounds
from fedavg_app.summary import describe, report, summarise
from strategies.base import CohortStrategy
from strategies.foreign import Screened
from tasks.base import Task
from tasks.data.store import Dataset

app = ServerApp()
logger = logging.getLogger("fedavg_app.server_app")


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the app on whatever grid this is: a simulation's or a deployment's."""
    try:
        run(grid, context.run_config)
    except USER_ERRORS as error:
        logger.error("run failed: %s", error)
        raise


def run(
    grid: Grid,
    run_config: Mapping[str, Any],
    evaluation: Callable[[Task, Dataset, RunConfig], Evaluate] = CentralTest,
) -> Outcome:
    """Run the whole experiment that the run config describes; its results are on disk afterwards.

    Args:
        grid: Reaches the clients.
        run_config: See `RunConfig`.
        evaluation: Returns what tests the global model.

    Raises:
        ConfigError: A value that cannot be used.
        DataError: The data set cannot be had.
        RunError: The run could not go on.
    """
    config = parse_config(run_config)
    task, strategy = load_parts(config)
    data = task.dataset(config.data_options)
    scheme_arguments = arguments("partition-args", config.partition_args)
    for split in [data.train, data.test] if config.fraction_evaluate else [data.train]:
        check_partition(config.partition, scheme_arguments, config.num_clients, split.targets)
    plan = make_plan(config, task)
    nodes = find_nodes(grid, config.num_clients)
    folder = RunDirectory(config, task.name)
    progress = RoundProgress(plan.num_rounds)
    describe(progress.console, config, task, plan, data, folder.path)
    records: list[RoundRecord] = []

    def on_round(record: RoundRecord) -> None:
        records.append(record)
        folder.append(record)
        progress.update(record)

    started = time.monotonic()
    failure = "interrupted"
    outcome = None
    try:
        strategy.summary()
        with progress:
            outcome = run_rounds(
                grid,
                strategy,
                ArrayRecord(task.initial_model(config.seed).state_dict()),
                nodes,
                plan,
                client_config(config, data),
                evaluation(task, data, config),
                on_round,
            )
        folder.write_model(outcome.arrays)
    except Exception as error:
        failure = str(error)
        raise
    finally:
        summary = summarise(plan, data, records, outcome, time.monotonic() - started)
        if outcome is None:
            summary |= {"status": "failed", "reason": failure}
        folder.write_summary(summary)
        title = f"{task.name}, {config.strategy}, {config.partition}, seed {config.seed}"
        if records:
            plot_run(folder.path, records, plan.target_accuracy, title)
        folder.close()
    report(progress.console, plan, outcome, folder.path)
    return outcome


def load_parts(config: RunConfig) -> tuple[Task, CohortStrategy | Screened]:
    """Return the task and the strategy that the config names.

    Raises:
        ConfigError: One of them is unknown, the strategy refuses its arguments, or a client mod
            cannot be had.
    """
    check_names(config)
    try:
        task = tasks.load(config.task)
    except ValueError as error:
        raise ConfigError("task", config.task, str(error)) from error
    try:
        chosen = arguments("strategy-args", config.strategy_args)
        strategy = strategies.build(config.strategy, chosen)
    except ConfigError:
        raise
    except ValueError as error:
        raise ConfigError("strategy-args", config.strategy_args, str(error)) from error
    load_mods(config.client_mods)
    if config.partition not in task.partitions:
        known = ", ".join(task.partitions)
        raise ConfigError("partition", config.partition, f"{task.name} can be split by: {known}")
    if config.device == "cuda" and not torch.cuda.is_available():
        raise ConfigError("device", "cuda", "no CUDA device here; give auto or cpu")
    return task, strategy


def make_plan(config: RunConfig, task: Task) -> Plan:
    """Return the plan of rounds, with the task's defaults where the config says "auto"."""
    rate, target = config.learning_rate, config.target_accuracy
    return Plan(
        num_rounds=config.num_server_rounds,
        fraction_train=config.fraction_train,
        fraction_evaluate=config.fraction_evaluate,
        learning_rate=task.learning_rate if rate == "auto" else rate,
        learning_rate_decay=config.learning_rate_decay,
        evaluate_every=config.evaluate_every,
        target_accuracy=(task.target_accuracy if target == "auto" else target) or None,
        round_timeout=config.round_timeout or None,
        seed=config.seed,
    )


def client_config(config: RunConfig, data: Dataset) -> ConfigRecord:
    """Return what every client is told: its local work, and which data set exactly to load."""
    # Only where there is one: Flower 1.41 cannot count the bytes of an empty string.
    directory = {"data-dir": data.options.directory} if data.options.directory else {}
    return ConfigRecord(
        {
            "local-epochs": config.local_epochs,
            "local-steps": config.local_steps,
            "batch-size": config.batch_size,
            "momentum": config.momentum,
            "seed": config.seed,
            "data-source": data.options.source,
            **directory,
        }
    )
