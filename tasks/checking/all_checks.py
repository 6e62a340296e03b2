"""All checks of a task, in their order."""

from collections.abc import Iterator

from torch import nn

from tasks.base import Task
from tasks.checking.batch_independence import check_tests
from tasks.checking.client_independence import check_clients
from tasks.checking.draws import check_draws
from tasks.checking.examples import check_examples, check_settings
from tasks.checking.finding import Finding, TaskError
from tasks.checking.network import check_network
from tasks.checking.repeatability import check_loads
from tasks.checking.training_steps import check_arrays, check_steps, runs_unknown_code
from tasks.data.dataset import Dataset

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
    try_clients = runs_unknown_code(task, model) and entries < MAX_ENTRIES
    yield from _quick_checks(task, data, model)
    if try_clients:
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
        steps = MANY_STEPS if runs_unknown_code(task, model) else STEPS
        yield from check_arrays(model)
        yield from _quick_checks(task, data, model)
        if not len(data.test):
            raise TaskError("dataset", "there are no test examples, which every evaluation needs")
    except TaskError as error:
        yield error.finding
        return
    for found in (
        check_steps(task, data, task.initial_model(seed)),
        check_tests(task, data, task.initial_model(seed)),
        check_loads(task, data, seed),
        check_clients(task, data, seed, steps),
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
