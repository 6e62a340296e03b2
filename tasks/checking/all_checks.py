"""All checks of a task, in their order."""

from collections.abc import Iterator

from tasks.base import Task
from tasks.checking.behaviour import (
    check_arrays,
    check_clients,
    check_loads,
    check_steps,
    check_tests,
)
from tasks.checking.examples import check_examples
from tasks.checking.finding import Finding, TaskError
from tasks.checking.network import check_network
from tasks.data.dataset import DataOptions, Dataset


def before_training(task: Task, data: Dataset, seed: int) -> Iterator[Finding]:
    """Yield what the checks find that are quick enough to be made before every training.

    Raises:
        TaskError: The task cannot be trained.
    """
    yield from check_examples(task, data)
    yield from check_network(task, data, task.initial_model(seed))


def all_checks(task: Task, data: Dataset, options: DataOptions, seed: int) -> Iterator[Finding]:
    """Yield what all checks find, errors included; those that follow an error may be left out.

    Args:
        task: The task.
        data: Its data.
        options: What they were loaded with.
        seed: Of the initial model.
    """
    try:
        yield from check_arrays(task.initial_model(seed))
        yield from before_training(task, data, seed)
    except TaskError as error:
        yield error.finding
        return
    for found in (
        check_steps(task, data, task.initial_model(seed)),
        check_tests(task, data, task.initial_model(seed)),
        check_loads(task, options, data, seed),
        check_clients(task, data, seed),
    ):
        try:
            yield from found
        except TaskError as error:
            yield error.finding
