"""Prepares a run: checks its settings, and loads the data, the model and the checkpoint."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedavg_app.config import RunConfig
from fedavg_app.errors import ConfigError
from fedavg_app.links.virtual_clock import VirtualClock, make_clock
from fedavg_app.partitioning.partitions import partition
from fedavg_app.results.checkpoint import RunState, load_checkpoint
from fedavg_app.results.run_folder import check_writable
from fedavg_app.server.global_model import GlobalModel
from fedavg_app.server.run_components import resolve
from fedavg_app.training_plan import TrainingPlan, make_plan
from strategies.base import FederatedStrategy

if TYPE_CHECKING:  # torch takes two seconds to import
    from tasks.base import Task
    from tasks.data.dataset import Dataset


@dataclass(frozen=True)
class PreparedRun:
    """A run that can start.

    Attributes:
        strategy: The strategy, as it is before round 1.
        model: The initial model, which knows the arrays that do not travel.
        state: The state of the run to resume; None for a new run.
        clock: The virtual clock of a simulation with links.
    """

    config: RunConfig
    task: "Task"
    strategy: FederatedStrategy[Any]
    plan: TrainingPlan
    data: "Dataset"
    model: GlobalModel
    state: RunState | None
    clock: VirtualClock | None = None


def prepare(config: RunConfig) -> PreparedRun:
    """Check a config, and return the run that it describes, before any client is asked.

    Raises:
        ConfigError: A value that cannot be used, data that cannot be split, or a run's folder
            that cannot be written.
        DataError: The data set is not available.
    """
    task, model, strategy = resolve(config)
    state = load_checkpoint(config) if config.resume else None
    if state is not None and config.num_server_rounds < (done := state.history[-1].round):
        fix = f"the run has completed {done} rounds; give more"
        raise ConfigError("num-server-rounds", config.num_server_rounds, fix)
    data = task.dataset(config.data_options)
    if state is not None and state.data != data.fingerprint:
        fix = "the run to resume was trained on other data; give the directory of those data"
        raise ConfigError("data-dir", config.data_dir, fix)
    # What cannot be split ends the run before any client is asked.
    if config.fraction_evaluate:
        partition(data, "test", config)
    sizes = [len(part) for part in partition(data, "train", config)]
    plan = make_plan(config, task, data)
    if state is not None and any(state.model[name] != one for name, one in model.fixed.items()):
        fix = "its fixed arrays, such as pretrained weights, are not those of the run to resume"
        raise ConfigError("task", config.task, fix)
    whole = bool(strategy.local_work)
    clock = make_clock(config, sizes, plan.seconds_per_example, whole_data=whole)
    check_writable(config)
    return PreparedRun(config, task, strategy, plan, data, model, state, clock)
