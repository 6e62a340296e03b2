"""Prepares a run: makes what its config names, and loads the data and the checkpoint.

What can be wrong with the settings is found here, before any client is asked.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord
from numpy.typing import NDArray

import strategies
import tasks
from fedavg_app.client.mods import load_mods
from fedavg_app.client_settings import ServerFacts, client_settings
from fedavg_app.config import RunConfig, TrainingConfig
from fedavg_app.errors import ConfigError
from fedavg_app.links import load_fleet
from fedavg_app.optimizer_choice import resolve_work
from fedavg_app.partitioning import DataDigests, make_partitioner, partition
from fedavg_app.partitioning.partitioner import Rows
from fedavg_app.plugins import load_component
from fedavg_app.results.checkpoint import RunState, check_run_folder, load_checkpoint
from fedavg_app.results.history import RoundMetrics
from fedavg_app.server.client_sampling import Facts
from fedavg_app.server.global_model import GlobalModel
from fedavg_app.server.strategy_setup import CHECKS, Components, make_strategy
from fedavg_app.training_plan import TrainingPlan, make_plan
from fedavg_app.virtual_clock import VirtualClock, make_clock
from strategies.rounds.runner import Runner

if TYPE_CHECKING:  # torch takes two seconds to import
    from tasks.base import Task
    from tasks.data.dataset import Dataset


logger = logging.getLogger("fedavg_app.preparation")


@dataclass(frozen=True)
class PreparedRun:
    """A run that can start.

    Attributes:
        strategy: The strategy, as it is before the first round to come.
        model: The initial model, which knows the arrays that do not travel.
        state: The state of the run to resume; None for a new run.
        digests: Of the data and of their partition.
        sizes: The number of training examples by client, n_k.
        clock: The virtual clock of a simulation with links.
    """

    config: RunConfig
    task: "Task"
    strategy: Runner
    plan: TrainingPlan
    data: "Dataset"
    model: GlobalModel
    state: RunState | None
    digests: DataDigests
    sizes: NDArray[np.int64]
    clock: VirtualClock | None = None

    @property
    def completed(self) -> list[RoundMetrics]:
        """The rounds that are completed already."""
        return self.state.history if self.state else []

    @property
    def validates(self) -> bool:
        """Whether the global model is evaluated on validation examples, and judged by these."""
        has_examples = bool(self.config.validation) or self.data.validation is not None
        return has_examples and not self.config.local_patterns

    @property
    def sent_model(self) -> ArrayRecord:
        """The part that travels of the model before the first round to come."""
        return self.model.sent_of(self.state.model) if self.state else self.model.sent

    def facts(self, own_data: Mapping[int, tuple[str, int]]) -> Facts:
        """Return what is known of the clients.

        Args:
            own_data: As `fedavg_app.server.nodes.Nodes` has it.
        """
        sizes, clock = self.sizes, self.clock
        return Facts(
            lambda client: own_data[client][1] if client in own_data else int(sizes[client]),
            Facts.device if clock is None else clock.device,
        )

    def told(self, *, with_number: bool = False) -> ConfigRecord:
        """Return what every message tells the clients, on request with their number."""
        options, number = self.data.options, self.config.num_clients if with_number else 0
        facts = ServerFacts(options.source, options.directory, number, self.model.fingerprint)
        return client_settings(self.plan.work, facts)

    def check_digests(self, others: DataDigests) -> None:
        """Compare the server's digests with those of a process that runs clients.

        Raises:
            ConfigError: They differ.
        """
        self.digests.check(others, self.config)


def prepare(
    config: RunConfig,
    tell: Callable[[str], None] = lambda _: None,
    components: Components | None = None,
    data: "Dataset | None" = None,
) -> PreparedRun:
    """Check a config, and return the run that it describes, before any client is asked.

    Args:
        config: The run's settings.
        tell: Called with each step, for people, as it begins.
        components: What `resolve` returned of the config, if it was called before, after
            `check_run_folder`.
        data: What `load_data` returned of both, if it was called before.

    Raises:
        ConfigError: A value that cannot be used, data that cannot be split, or not the data of the
            run to resume.
        DataError: The data set is not available.
    """
    if components is None:
        check_run_folder(config)
        components = resolve(config)
    task, model, strategy = components.task, components.model, components.strategy
    state = load_checkpoint(config) if config.resume else None
    if data is None:
        tell(f"loading the data of {task.name}")
        data = load_data(config, task, state)
    if state is not None and state.data != data.fingerprint:
        fix = "the run to resume was trained on other data; give the directory of those data"
        raise ConfigError("data-dir", config.data_dir, fix)
    for check in DATA_CHECKS:
        check(config, task, data)
    tell(f"splitting {len(data.train):,} examples among {config.num_clients:,} clients")
    rows = partition(data, "train", config)
    plan = make_plan(config, task, data, state.resolved if state else None)
    if state is not None:
        _check_resumed(config, state, plan, model)
        strategy = state.strategy
    clock = _clock(config, rows, plan, strategy)
    digests = DataDigests.of(data, rows)
    return PreparedRun(config, task, strategy, plan, data, model, state, digests, rows.sizes, clock)


def _check_resumed(
    config: RunConfig, state: RunState, plan: TrainingPlan, model: GlobalModel
) -> None:
    """Check that a run can go on from a checkpoint.

    Raises:
        ConfigError: It has had its rounds or its budget, or the arrays that do not travel differ.
    """
    if plan.num_rounds < (done := state.history[-1].round):
        fix = f"the run has completed {done} rounds; give more"
        raise ConfigError("num-server-rounds", plan.num_rounds, fix)
    if plan.budget is not None and not plan.affords(state.history):
        fix = f"the run has spent {plan.spent(state.history):.6g} {plan.budget.kind} already"
        raise ConfigError("budget", config.budget, f"{fix}; give more")
    if any(state.model[name] != array for name, array in model.fixed.items()):
        fix = "its fixed arrays, such as pretrained weights, are not those of the run to resume"
        raise ConfigError("task", config.task, fix)


def _clock(
    config: RunConfig, rows: Rows, plan: TrainingPlan, strategy: Runner
) -> VirtualClock | None:
    """Return the run's virtual clock, if it has one."""
    whole = bool(strategy.local_work)
    clock = make_clock(config, rows.sizes, plan.seconds_per_example, whole_data=whole)
    if clock is None and strategy.takes_late and config.over_selection:
        text = "which replies are late depends on the machines: give links for a virtual clock"
        logger.info(text)
    return clock


def resolve(config: RunConfig) -> Components:
    """Return what a config names, all of it checked; nothing here needs data or workers.

    Raises:
        ConfigError: As for `check_names`, `load_task`, `resolve_work`, `make_strategy`, `CHECKS`.
    """
    check_names(config)
    task = load_task(config)
    model, work = GlobalModel.initial(task, config), resolve_work(config, task)
    parts = Components(config, task, model, work, make_strategy(config, model))
    for check in CHECKS:
        check(parts)
    return parts


def check_names(config: RunConfig) -> None:
    """Check all that can be checked without torch, which takes seconds to import.

    Raises:
        ConfigError: There is no such task, strategy, partition, client mod or fleet, or as for
            `make_strategy`.
    """
    load_component("task", config.task, tasks.check_name)
    load_component("strategy", config.strategy, strategies.load)
    make_strategy(config)
    make_partitioner(config.partition, config.partition_args.values)
    load_mods(config.client_mods)
    if config.links:
        load_fleet(config.links)


def load_task(config: TrainingConfig) -> "Task":
    """Return the task that the config names.

    Raises:
        ConfigError: It is unknown, its data cannot be split as the config says, or the device is
            not available.
    """
    task = load_component("task", config.task, tasks.load)
    if isinstance(config, RunConfig):
        name, known = config.partition, task.partitions
        if ":" not in name and name not in known:
            raise ConfigError("partition", name, f"{task.name} can be split by: {', '.join(known)}")
    if config.device == "cuda":
        import torch

        if not torch.cuda.is_available():
            raise ConfigError("device", "cuda", "no CUDA device here; give auto or cpu")
    return task


def load_data(config: TrainingConfig, task: "Task", state: RunState | None = None) -> "Dataset":
    """Return the task's data set, from where the config says or the run to resume had it.

    Raises:
        ConfigError: The task's ``dataset`` returned something else.
        DataError: The data set is not available.
    """
    from tasks.data.dataset import Dataset

    options = config.data_options
    if state is not None and options.source == "auto":
        options = replace(options, source=state.data_source)
    data: object = task.dataset(options)
    if not isinstance(data, Dataset):
        fix = f"dataset: returned a {type(data).__name__}, not a tasks.data.dataset.Dataset"
        raise ConfigError("task", config.task, fix)
    return data


def check_task(config: TrainingConfig, task: "Task", data: "Dataset") -> None:
    """Make the quick checks of a task; log its warnings.

    Raises:
        ConfigError: The task cannot be trained.
    """
    from tasks.checking import TaskError
    from tasks.checking.all_checks import before_training

    try:
        for finding in before_training(task, data, config.seed):
            if finding.kind == "warning":
                logger.warning("task %s: %s", config.task, finding)
    except TaskError as error:
        raise ConfigError("task", config.task, str(error)) from error


def _check_tests(config: RunConfig, task: "Task", data: "Dataset") -> None:
    """Check that the test examples can be split, where clients test."""
    del task
    if config.fraction_evaluate:
        partition(data, "test", config)


def _check_validation(config: RunConfig, task: "Task", data: "Dataset") -> None:
    """Check that no examples are set aside beside the task's own."""
    if config.validation and data.validation is not None:
        fix = f"leave it out: {task.name} has validation examples of its own"
        raise ConfigError("validation", config.validation, fix)


# Each raises a ConfigError where a run cannot use its data.
DATA_CHECKS = (check_task, _check_tests, _check_validation)
