"""The clients' local work with the task's values for "auto": its optimiser and learning rate."""

from typing import TYPE_CHECKING

from fedavg_app.config import TrainingConfig
from fedavg_app.errors import ConfigError
from tasks.arguments import Arguments
from tasks.training.training_settings import SGD, LocalWork

if TYPE_CHECKING:  # torch takes two seconds to import
    from tasks.base import Task


def resolve_work(config: TrainingConfig, task: "Task") -> LocalWork:
    """Return the local work of a config, with the optimiser that it names, or the task.

    Central training keeps its optimiser's state from step to step.

    Raises:
        ConfigError: There is no such optimiser, or keys of SGD are given for another.
    """
    values = {"optimizer_state": "kept"} | {
        name: getattr(config, name) for name in LocalWork.model_fields if hasattr(config, name)
    }
    name, arguments = config.optimizer, config.optimizer_args
    if name == "auto":
        name = task.optimizer
        try:
            arguments = Arguments.of({**task.optimizer_args, **arguments.values})
        except ValueError as error:
            raise ConfigError("task", config.task, f"its optimizer_args: {error}") from None
    name = name if ":" in name else name.lower()
    _check(config, name, arguments)
    return LocalWork(**{**values, "optimizer": name, "optimizer_args": arguments})


def _check(config: TrainingConfig, name: str, arguments: Arguments) -> None:
    if name == SGD:
        if arguments:
            fix = "SGD has none; give momentum or weight-decay, or another optimizer"
            raise ConfigError("optimizer-args", config.optimizer_args, fix)
        if getattr(config, "optimizer_state", "new") != "new":
            fix = "SGD keeps its momentum anyway; leave it out, or give another optimizer"
            raise ConfigError("optimizer-state", "kept", fix)
        return
    for key, value in (("momentum", config.momentum), ("weight-decay", config.weight_decay)):
        if value:
            fix = f"it is of SGD; with {name} give it in optimizer-args"
            raise ConfigError(key, value, fix)
    from tasks.training.optimizers import find_optimizer

    try:
        find_optimizer(name)
    except (ValueError, ImportError, AttributeError) as error:
        raise ConfigError("optimizer", name, str(error)) from error


def check_optimizer(work: LocalWork, config: TrainingConfig, task: "Task") -> None:
    """Try the optimiser on the weights of the task's model.

    Raises:
        ConfigError: It refuses its arguments or the weights, or cannot be kept as the config says.
    """
    if work.optimizer == SGD:
        return
    from tasks.training import optimizers

    name, arguments = work.optimizer, work.optimizer_args
    model = task.initial_model(config.seed)
    try:
        optimizers.check_optimizer(name, arguments.values, model)
    except Exception as error:
        if arguments:
            given = config.optimizer_args or arguments
            raise ConfigError("optimizer-args", given, f"{name} refuses it: {error}") from error
        fix = f"it refuses the model's weights: {error}; give another"
        raise ConfigError("optimizer", name, fix) from error
    if work.optimizer_state == "kept":
        try:
            optimizers.check_optimizer(name, arguments.values, model, kept=True)
        except Exception as error:
            fix = f"{name} cannot be kept: {error}; give new"
            raise ConfigError("optimizer-state", "kept", fix) from error


def learning_rate(config: TrainingConfig, task: "Task", work: LocalWork) -> float:
    """Return the learning rate that the config gives, or what "auto" means for the optimiser.

    Raises:
        ConfigError: It has no default.
    """
    if config.learning_rate != "auto":
        return config.learning_rate
    rates, name = task.learning_rates, work.optimizer
    if name.lower() == task.optimizer.lower() or task.train is not None:
        return rates.get(config.method, task.learning_rate)
    from tasks.training.optimizers import default_rate

    rate = rates.get(name, default_rate(name))
    if rate is None:
        raise ConfigError("learning-rate", "auto", f"{name} has no default; give a number")
    return rate
