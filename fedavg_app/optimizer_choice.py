"""The optimiser of the clients' training: the config's, or the task's."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fedavg_app.config import TrainingConfig
from fedavg_app.errors import ConfigError

if TYPE_CHECKING:  # torch takes two seconds to import
    from tasks.base import Task

SGD = "sgd"


@dataclass(frozen=True)
class ClientOptimizer:
    """An optimiser that can be made.

    Attributes:
        name: Its name or path; "" for SGD, which the keys "momentum" and "weight-decay" describe.
        arguments: Its arguments but the learning rate.
    """

    name: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def settings(self) -> dict[str, str]:
        """Return what clients are told; nothing for SGD."""
        if not self.name:
            return {}
        arguments = {"optimizer-args": json.dumps(self.arguments)} if self.arguments else {}
        return {"optimizer": self.name, **arguments}

    def __str__(self) -> str:
        return self.name or SGD


def client_optimizer(config: TrainingConfig, task: "Task") -> ClientOptimizer:
    """Return the optimiser that the config names, or the task.

    Raises:
        ConfigError: There is none of that name, or keys of SGD are given.
    """
    name, arguments = config.optimizer, config.optimizer_arguments
    if name == "auto":
        name, arguments = task.optimizer, {**task.optimizer_args, **arguments}
    name = name if ":" in name else name.lower()
    if name == SGD:
        if arguments:
            fix = "SGD has none; give momentum or weight-decay, or another optimizer"
            raise ConfigError("optimizer-args", config.optimizer_args, fix)
        if getattr(config, "optimizer_state", "new") != "new":
            fix = "SGD keeps its momentum anyway; leave it out, or give another optimizer"
            raise ConfigError("optimizer-state", "kept", fix)
        return ClientOptimizer()
    for key, value in (("momentum", config.momentum), ("weight-decay", config.weight_decay)):
        if value:
            fix = f"it is of SGD; with {name} give it in optimizer-args"
            raise ConfigError(key, value, fix)
    from tasks.training.optimizers import find_optimizer

    try:
        find_optimizer(name)
    except (ValueError, ImportError, AttributeError) as error:
        raise ConfigError("optimizer", name, str(error)) from error
    return ClientOptimizer(name, arguments)


def check_optimizer(optimizer: ClientOptimizer, config: TrainingConfig, task: "Task") -> None:
    """Try the optimiser on the weights of the task's model.

    Raises:
        ConfigError: It refuses its arguments or the weights, or cannot be kept as the config says.
    """
    if not optimizer.name:
        return
    from tasks.training import optimizers

    name, arguments = optimizer.name, optimizer.arguments
    model = task.initial_model(config.seed)
    try:
        optimizers.check_optimizer(name, arguments, model)
    except Exception as error:
        if arguments:
            given = config.optimizer_args or str(arguments)
            raise ConfigError("optimizer-args", given, f"{name} refuses it: {error}") from error
        fix = f"it refuses the model's weights: {error}; give another"
        raise ConfigError("optimizer", name, fix) from error
    if getattr(config, "optimizer_state", "new") == "kept":
        try:
            optimizers.check_optimizer(name, arguments, model, kept=True)
        except Exception as error:
            fix = f"{name} cannot be kept: {error}; give new"
            raise ConfigError("optimizer-state", "kept", fix) from error


def learning_rate(config: TrainingConfig, task: "Task", optimizer: ClientOptimizer) -> float:
    """Return the learning rate that the config gives, or what "auto" means for the optimiser.

    Raises:
        ConfigError: It has no default.
    """
    if config.learning_rate != "auto":
        return config.learning_rate
    rates, name = task.learning_rates, str(optimizer)
    if name.lower() == task.optimizer.lower() or task.train is not None:
        return rates.get(config.method, task.learning_rate)
    from tasks.training.optimizers import default_rate

    rate = rates.get(name, default_rate(name))
    if rate is None:
        raise ConfigError("learning-rate", "auto", f"{name} has no default; give a number")
    return rate
