"""All checks of a task, in their order."""

from collections.abc import Iterator

from tasks.base import Task
from tasks.checking import Finding, TaskError
from tasks.checking.data import (
    check_arrays,
    check_examples,
    check_loads,
    check_network,
    check_settings,
)
from tasks.checking.loss import check_loss
from tasks.checking.metrics import check_metrics
from tasks.checking.training import STEPS, check_clients, check_shortcuts, difference
from tasks.checking.trial import Trial
from tasks.data.dataset import Dataset

# Those that are quick enough for every training.
QUICK = (check_settings, check_network, check_examples, check_loss, check_metrics)
# An error of another check ends all checks; after an error of one of these the rest is still made.
SLOW = (check_loads, check_clients, check_shortcuts)
# Before a training, clients are not tried with larger models: their steps take long.
MAX_ENTRIES = 2 * 10**7


def before_training(task: Task, data: Dataset, seed: int) -> Iterator[Finding]:
    """Yield what the checks find that are quick enough to be made before every training.

    Raises:
        TaskError: The task cannot be trained.
    """
    trial = Trial(task, data, seed)
    for check in QUICK:
        yield from check(trial)
    if sum(weight.numel() for weight in trial.network().parameters()) < MAX_ENTRIES:
        if task.in_parts and task.train is None:
            difference(trial, "in_parts")
        yield from check_clients(trial, STEPS)


def all_checks(task: Task, data: Dataset, seed: int) -> Iterator[Finding]:
    """Yield what all checks find, errors included; those that follow an error may be left out.

    Args:
        task: The task.
        data: Its data.
        seed: Of the initial model.
    """
    trial = Trial(task, data, seed)
    for check in (check_arrays, *QUICK, *SLOW):
        try:
            yield from check(trial)
        except TaskError as error:
            yield error.finding
            if check not in SLOW:
                return
