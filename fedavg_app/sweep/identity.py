"""Which configs give the same run, and the command line of a config."""

from collections.abc import Iterable
from typing import Any

from fedavg_app.config import Effect, RunConfig, TrainingConfig, fields_with, with_clients
from fedavg_app.server.preparation import load_task
from fedavg_app.training_plan import make_plan

Identity = frozenset[tuple[str, Any]]


def identity(config: TrainingConfig) -> Identity:
    """Return a config's identity: equal for two configs if and only if they give the same run.

    Raises:
        ConfigError: Its task, whose default rate is to be taken, is not known.
    """
    if config.learning_rate == "auto":
        # Without the device: a table is made on machines that lack it, too.
        task = load_task(config.model_copy(update={"device": "auto"}))
        rate = make_plan(config, task).learning_rate
        config = config.model_copy(update={"learning_rate": rate})
    if config.objective != "auto":
        task = load_task(config.model_copy(update={"device": "auto"}))
        if make_plan(config, task).objective == task.default_objective():
            config = config.model_copy(update={"objective": "auto"})
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
