"""What a config names must go together; what a strategy raises becomes an error of the user's."""

import logging
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flwr.app import MessageType

import strategies
from fedavg_app.config import RunConfig
from fedavg_app.errors import ConfigError, error_place
from fedavg_app.optimizer_choice import check_optimizer, learning_rate
from fedavg_app.plugins import load_component
from fedavg_app.server.client_sampling import cohort_size
from fedavg_app.server.global_model import GlobalModel
from fedavg_app.training_plan import objective_and_target
from strategies.rounds.local_arrays import matching
from strategies.rounds.runner import Runner, StrategyError
from strategies.rounds.strategy_runner import StrategyRunner
from strategies.rounds.values import ReplyBounds, RunSettings
from strategies.selection import UNIFORM, make_selection
from tasks.training.training_settings import SGD, LocalWork

if TYPE_CHECKING:  # torch takes two seconds to import
    from tasks.base import Task

logger = logging.getLogger("fedavg_app.local_arrays")


@dataclass(frozen=True)
class Components:
    """What a config names, to be checked by `CHECKS`.

    Attributes:
        model: The initial model.
        work: The clients' local work.
    """

    config: RunConfig
    task: "Task"
    model: GlobalModel
    work: LocalWork
    strategy: Runner


def make_strategy(config: RunConfig, model: GlobalModel | None = None) -> Runner:
    """Return the strategy that the config names; without a model it can only be looked at.

    Raises:
        ConfigError: It refuses its arguments, or a round needs more replies than it has clients.
    """
    settings = _run_settings(config, model)
    load_component("selection", config.selection, make_selection)
    try:
        return strategies.build(config.strategy, config.strategy_args.values, settings)
    except (ValueError, ImportError, AttributeError) as error:
        raise ConfigError("strategy-args", config.strategy_args, str(error)) from error


def _check_training(parts: Components) -> None:
    """Check that the strategy can use what the clients' training gives it."""
    config, strategy = parts.config, parts.strategy
    if parts.task.train and (strategy.plain_sgd or strategy.train_type != MessageType.TRAIN):
        fix = "the task has its own training loop, which it does not know; give fedavg or one "
        raise ConfigError("strategy", config.strategy, f"{fix}that compresses updates")
    if strategy.train_type != MessageType.TRAIN and config.optimizer not in ("auto", SGD):
        fix = f"leave it out: the clients of {config.strategy} compute a gradient, and take no step"
        raise ConfigError("optimizer", config.optimizer, fix)
    if strategy.plain_sgd:
        for key, value, default in (
            ("momentum", config.momentum, 0.0),
            ("rate-schedule", config.rate_schedule, "constant"),
            ("optimizer", parts.work.optimizer, SGD),
        ):
            if value != default:
                fix = f"leave it out: {config.strategy} is defined for SGD without momentum"
                if key == "optimizer":
                    fix = f"give sgd: {config.strategy} is defined for SGD alone"
                raise ConfigError(key, value, fix)


def _check_local_arrays(parts: Components) -> None:
    """Check that local arrays are some of those that travel otherwise, and all that have to be."""
    config, model, strategy = parts.config, parts.model, parts.strategy
    given, names = config.local_arrays, model.arrays.sent
    clipped = [name for name in model.sent if name.endswith("running_mean")]
    if strategy.clips_on_clients and clipped:
        fix = f"its client mods would clip {clipped[0]!r} with the update; give a network without "
        fix += "batch normalisation, or name its arrays in local-arrays"
        raise ConfigError("strategy", config.strategy, fix)
    released = [name for name in model.arrays.buffers if name in model.sent]
    if strategy.counts_privacy and released:
        fix = f"epsilon would not cover {', '.join(released)}, which are averaged without clipping "
        fix += "and noise; name them here, too, or give a network without such arrays"
        raise ConfigError("local-arrays", given, fix)
    if not given:
        return
    for pattern in config.local_patterns or [given]:
        if not matching(names, [pattern]):
            fix = f"{pattern!r} matches no array that clients send; there are: {', '.join(names)}"
            raise ConfigError("local-arrays", given, fix)
    federated = set(model.arrays.trained) & set(model.sent)
    if not federated and (model.sent or config.strategy != "fedavg"):
        fix = "give fewer, or '*' with strategy fedavg for clients that train alone"
        raise ConfigError("local-arrays", given, f"nothing would be federated; {fix}")
    if strategy.train_type != MessageType.TRAIN:
        fix = f"{config.method}'s clients send gradients and train nothing; give another strategy"
        raise ConfigError("local-arrays", given, fix)


def _check_selection(parts: Components) -> None:
    """Check that the strategy follows the run's selection."""
    config = parts.config
    if config.selection != UNIFORM and not isinstance(parts.strategy, StrategyRunner):
        fix = "leave it out: strategies written for Flower take the clients drawn uniformly"
        raise ConfigError("selection", config.selection, fix)


def _check_model(parts: Components) -> None:
    """Check that the strategy can send and train the model, and clients test it if they shall."""
    runner, config = parts.strategy, parts.config
    try:
        model = runner.read_model(parts.model.sent)
    except ValueError as error:
        raise ConfigError("task", config.task, str(error)) from error
    if not isinstance(runner, StrategyRunner):
        return
    try:
        runner.strategy.check(model, runner.settings)
    except ValueError as error:
        raise ConfigError("strategy", config.strategy, str(error)) from error
    if runner.strategy.hides_clients:
        _check_hidden(config)


def _check_hidden(config: RunConfig) -> None:
    """Check that nothing is asked of single clients, and that there are several."""
    hides = f"{config.strategy} hides what single clients report"
    if config.fraction_evaluate:
        raise ConfigError("fraction-evaluate", config.fraction_evaluate, f"give 0: {hides}")
    if config.initial_loss:
        raise ConfigError("initial-loss", True, f"leave it out: {hides}")
    if config.num_clients and cohort_size(config.fraction_train, config.num_clients) < 2:
        fix = f"give one by which two clients or more take part: {hides}, in their sum"
        raise ConfigError("fraction-train", config.fraction_train, fix)


# Each raises a ConfigError where components do not go together, or cannot be used.
CHECKS: tuple[Callable[[Components], object], ...] = (
    lambda parts: check_optimizer(parts.work, parts.config, parts.task),
    lambda parts: learning_rate(parts.config, parts.task, parts.work),
    lambda parts: (
        parts.config.objective == parts.config.target == "auto"
        or objective_and_target(parts.config, parts.task)
    ),
    _check_training,
    _check_local_arrays,
    _check_selection,
    _check_model,
)


def warn_of_unknown_objective(config: RunConfig, name: str) -> None:
    """Log that a run has no objective if arrays are local and clients do not evaluate."""
    if config.local_arrays and not config.fraction_evaluate:
        logger.warning(
            "local-arrays = %r with fraction-evaluate = 0: the clients' own %s will not be "
            "known, so there is no best model, and neither a target nor patience ends the run; "
            "give fraction-evaluate, as 1.0",
            config.local_arrays,
            name,
        )


@contextmanager
def reporting_strategy_errors(config: RunConfig) -> Iterator[None]:
    """Raise a ConfigError in place of an error of a strategy written for Flower."""
    try:
        yield
    except StrategyError as error:
        reason = f"{error}: {error_place(error.__cause__)}" if error.__cause__ else str(error)
        key = "strategy-args" if config.strategy_args else "strategy"
        raise ConfigError(key, config.strategy_args or config.strategy, reason) from error


def _run_settings(config: RunConfig, model: GlobalModel | None) -> RunSettings:
    """Return what the strategy may know of the run."""
    clients = cohort_size(config.fraction_train, config.num_clients)
    if config.min_replies > clients:
        fix = f"a round has {clients} clients; give at most {clients}, or a larger fraction-train"
        raise ConfigError("min-replies", config.min_replies, fix)
    bounds = ReplyBounds(config.max_examples, config.max_update_norm or math.inf)
    buffers = tuple(name for name in model.sent if name in model.arrays.buffers) if model else ()
    return RunSettings(
        config.num_clients, config.seed, config.min_replies, bounds, buffers, config.selection
    )
