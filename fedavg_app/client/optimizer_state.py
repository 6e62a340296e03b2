"""What a client's optimiser keeps from round to round: momentum, Adam's moments, a loop's own."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from flwr.app import ArrayRecord, Context

from strategies.rounds.flower_arrays import find_record, from_record, to_record

if TYPE_CHECKING:
    from tasks.training.local_training import Config, TaskClient
    from tasks.training.optimizers import Memory

# The records of a client's state that keep its momentum, what another optimiser keeps, or a task's
# own loop, from round to round.
MOMENTUM, OPTIMIZER, OWN_LOOP = "momentum", "optimizer", "own-loop"


@contextmanager
def optimizer_state(
    context: Context, config: "Config", client: "TaskClient"
) -> "Iterator[Memory | None]":
    """Yield the state of the optimiser or the task's own loop, and store it afterwards.

    The state changes last, and not at all if the work inside raises or nothing is to be kept. A
    client that lost its state begins anew.
    """
    from tasks.training.training_settings import TrainingSettings

    settings, own = TrainingSettings.of(config), client.task.train is not None
    if not settings.keeps_memory and not own:
        yield None
        return
    key = OWN_LOOP if own else OPTIMIZER if settings.optimizer else MOMENTUM
    memory = from_record(find_record(context.state, key, ArrayRecord) or ArrayRecord())
    yield memory

    if memory or not own:
        context.state[key] = to_record(memory)
