"""All checks of a task, in their order."""

from collections.abc import Iterator

from torch import nn

from tasks.base import Task
from tasks.checking.arrays import check_arrays
from tasks.checking.batch_independence import check_tests
from tasks.checking.client_independence import check_clients
from tasks.checking.draws import check_draws
from tasks.checking.examples import check_examples, check_settings
from tasks.checking.finding import Finding, TaskError
from tasks.checking.network import check_network
from tasks.checking.repeatability import check_loads
from tasks.checking.shortcuts import check_in_parts, check_shortcuts
from tasks.data.dataset import Dataset
from tasks.training.optimizers import check_optimizer

# Before a training, clients are not tried with larger models: their steps take long.
MAX_ENTRIES = 2 * 10**7
# Some networks change what they do once they have seen a number of batches.
STEPS, MANY_STEPS = 3, 25


def before_training(task: Task, data: Dataset, seed: int) -> Iterator[Finding]:
    """Yield what the checks find that are quick enough to be made before every training.

    Raises:
        TaskError: The task cannot be trained.
    """
    model = task.initial_model(seed)
    entries = sum(weight.numel() for weight in model.parameters())
    yield from _quick_checks(task, data, model)
    if entries < MAX_ENTRIES:
        check_in_parts(task, data, seed)
        yield from check_clients(task, data, seed, STEPS)


def all_checks(task: Task, data: Dataset, seed: int) -> Iterator[Finding]:
    """Yield what all checks find, errors included; those that follow an error may be left out.

    Args:
        task: The task.
        data: Its data.
        seed: Of the initial model.
    """
    try:
        model = task.initial_model(seed)
        yield from check_arrays(model)
        _check_optimizer(task, model)
        yield from _quick_checks(task, data, model)
        if not len(data.test):
            raise TaskError("dataset", "there are no test examples, which every evaluation needs")
    except TaskError as error:
        yield error.finding
        return
    for found in (
        check_tests(task, data, task.initial_model(seed)),
        check_loads(task, data, seed),
        check_clients(task, data, seed, MANY_STEPS),
        check_shortcuts(task, data, seed),
    ):
        try:
            yield from found
        except TaskError as error:
            yield error.finding


def _quick_checks(task: Task, data: Dataset, model: nn.Module) -> Iterator[Finding]:
    check_settings(task)
    yield from check_examples(task, data)
    check_draws(task, data)
    yield from check_network(task, data, model)


def _check_optimizer(task: Task, model: nn.Module) -> None:
    try:
        check_optimizer(task.optimizer, task.optimizer_args, model)
    except Exception as error:
        raise TaskError("optimizer", f"{task.optimizer}: {error}") from error
