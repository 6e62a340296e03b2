"""A run of a sweep: which configs give the same run, its command line, and what is done of it."""

import dataclasses
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedavg_app.config import Effect, RunConfig, TrainingConfig, fields_with, with_clients
from fedavg_app.errors import ConfigError
from fedavg_app.results.checkpoint import has_checkpoint, saved_config
from fedavg_app.results.comparison_names import Name
from fedavg_app.results.finished_run import STATUSES, read_summary
from fedavg_app.server.preparation import load_task
from fedavg_app.training_plan import make_plan

Identity = frozenset[tuple[str, Any]]


@dataclass(frozen=True)
class PlannedRun:
    """A run of a sweep.

    Attributes:
        name: Human-readable: how it differs from the others.
        slug: The name of its folder.
        config: Its settings.
        method: The name of its method in tables and figures, the same for all seeds.
    """

    name: str
    slug: str
    config: TrainingConfig
    method: Name = dataclasses.field(default_factory=Name)


def finished_folder(folder: Path) -> Path | None:
    """Return the folder of the finished run in this folder; None if there is none."""
    ended = (path.parent for path in folder.glob("*/summary.json"))
    return next((run for run in ended if read_summary(run)["status"] in STATUSES), None)


def resumable_folder(folder: Path, planned: TrainingConfig) -> Path | None:
    """Return the folder of the run in this folder that can resume as the planned run.

    The planned run may have a larger budget, and more rounds with it.
    """
    for path in folder.glob("*/"):
        with suppress(ConfigError):
            saved = saved_config(str(path))
            more = isinstance(planned, RunConfig) and planned.budget and saved.budget
            if more and planned.num_server_rounds >= saved.num_server_rounds:
                names = "budget", "num_server_rounds"
                saved = saved.model_copy(update={name: getattr(planned, name) for name in names})
            if has_checkpoint(path) and identity(saved) == identity(planned):
                return path
    return None


def identity(config: TrainingConfig) -> Identity:
    """Return a config's identity: equal for two configs if and only if they give the same run.

    Raises:
        ConfigError: Its task, whose default rate is to be taken, is not known.
    """
    if config.learning_rate == "auto" or config.objective != "auto":
        # A machine that only makes tables may lack the device.
        task = load_task(config.model_copy(update={"device": "auto"}))
        plan = make_plan(config, task)
        name = "auto" if plan.objective == task.default_objective() else config.objective
        config = config.model_copy(update={"learning_rate": plan.learning_rate, "objective": name})
    return frozenset(settings(config).items())


def settings(config: TrainingConfig) -> dict[str, Any]:
    """Return the keys that change the run's result, in kebab case."""
    without_effect = fields_with(type(config), Effect.NONE)
    return config.model_dump(by_alias=True, exclude=without_effect)


def arguments(config: TrainingConfig, without: Iterable[str] = ()) -> list[str]:
    """Return the subcommand for this config: task, seed, and what differs from the defaults."""
    words = ["run" if isinstance(config, RunConfig) else "central"]
    defaults = with_clients(RunConfig()) if isinstance(config, RunConfig) else type(config)()
    fields = type(config).model_fields
    for name, field in sorted(fields.items(), key=lambda item: item[0] != "task"):
        value, default = getattr(config, name), getattr(defaults, name)
        if name not in without and (value != default or name in ("task", "seed")):
            words += [f"--{field.alias or name}", str(value)]
    return words
