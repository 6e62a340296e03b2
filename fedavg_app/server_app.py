"""The ServerApp: config -> components -> training loop, with its results in a folder."""

import logging
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from flwr.app import ArrayRecord, ConfigRecord, Context
from flwr.serverapp import Grid, ServerApp

from fedavg_app.callbacks.base import MakeCallback, TrainingRun
from fedavg_app.callbacks.training_callbacks import TrainingCallbacks
from fedavg_app.config import RunConfig, parse_config, with_clients
from fedavg_app.errors import USER_ERRORS, ConfigError, error_place
from fedavg_app.results.checkpoint import (
    CheckpointSchedule,
    ClientStateGrid,
    RunState,
    save_checkpoint,
)
from fedavg_app.results.metrics import RoundMetrics, TrainingResult
from fedavg_app.server.global_evaluation import CentralEvaluation, Evaluate
from fedavg_app.server.network_grid import NetworkGrid, count_nodes, is_network_grid
from fedavg_app.server.node_query import NodeQuery
from fedavg_app.server.node_registry import NodeRegistry
from fedavg_app.server.preparation import PreparedRun, prepare
from fedavg_app.server.training_loop import TrainingLoop
from strategies.runner import StrategyError
from tasks.base import Task
from tasks.data.dataset import Dataset

# The keys that say how a client trains, for strategies whose clients do.
LOCAL_SGD = ("local-epochs", "local-steps", "batch-size")

app = ServerApp()
logger = logging.getLogger("fedavg_app.server_app")


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the app on whatever grid this is: a simulation's or a deployment's."""
    try:
        config = parse_config(context.run_config)
        if config.links and is_network_grid(grid):
            raise ConfigError("links", config.links, "leave it out: these devices have their own")
        grid = NetworkGrid(grid) if is_network_grid(grid) else grid
        counted = with_clients(config, config.num_clients or count_nodes(grid, config.node_timeout))
        run(grid, prepare(counted), tell_clients_number=not config.num_clients)
    except USER_ERRORS:
        # Flower prints the error as it ends this process; the frames would hide its one line.
        sys.tracebacklimit = 0
        raise


def run(
    grid: Grid,
    prepared: PreparedRun,
    evaluation: Callable[[Task, Dataset, RunConfig], Evaluate] = CentralEvaluation,
    callbacks: Sequence[MakeCallback] = (),
    *,
    tell_clients_number: bool = False,
) -> TrainingResult:
    """Run the training; its results are on disk afterwards.

    Args:
        grid: Reaches the clients.
        prepared: The run, as `prepare` returns it.
        evaluation: Returns what evaluates the global model.
        callbacks: Make further callbacks, beside the run directory and the console.
        tell_clients_number: Whether messages say how many clients there are, which the run config
            that clients see does not.

    Raises:
        ConfigError: The run's folder or a callback cannot be made, or a strategy written for Flower
            failed.
        RunError: The run could not go on.
    """
    config, task, data = prepared.config, prepared.task, prepared.data
    strategy, initial, state = prepared.strategy, prepared.model, prepared.state
    model = initial.sent
    completed: list[RoundMetrics] = []
    settings = client_config(config, data, initial.fingerprint, with_number=tell_clients_number)
    nodes = NodeRegistry(grid, config.num_clients, _node_query(grid, prepared, settings))
    nodes.wait_for_start(config.min_nodes, config.node_timeout)
    if state is not None:
        strategy, completed = state.strategy, state.history
        model = initial.sent_of(state.model)
        if state.client_states and isinstance(grid, ClientStateGrid):
            grid.restore_states(state.client_states)
        else:
            # Flower keeps a client's state for one series of runs; `flwr run` begins a new one, and
            # the checkpoint of one has no states.
            strategy.forget_clients()

    checkpoints = CheckpointSchedule(config)

    def on_round_end(metrics: RoundMetrics, sent: ArrayRecord) -> None:
        whole = initial.complete(sent)
        training.on_round_end(metrics, whole)
        if checkpoints.is_due(metrics.round):
            states = grid.client_states() if isinstance(grid, ClientStateGrid) else {}
            best = training.result.best_model
            reached = RunState(
                strategy, whole, [metrics], data.fingerprint, states, best,
                data.options.source, prepared.plan.resolved(),
            )  # fmt: skip
            save_checkpoint(training.run.folder, config, reached)

    work = strategy.local_work or config.local_work
    training_run = TrainingRun(
        config, task, prepared.plan, data, completed,
        local_work=work, model=state.model if state else None,
        best_model=state.best_model if state else None, own_data=nodes.own_data,
    )  # fmt: skip
    with TrainingCallbacks(training_run, callbacks) as training:
        strategy.summary()
        _log_own_data(nodes.own_data, config.num_clients)
        if strategy.local_work:
            _warn_of_ignored(config, work)
        if config.local_arrays and not config.fraction_evaluate:
            text = (
                "local-arrays = %r with fraction-evaluate = 0: the clients' own accuracy will not "
            )
            text += "be known, so there is no best model, and neither target-accuracy nor patience "
            text += "ends the run; give fraction-evaluate, as 1.0"
            logger.warning(text, config.local_arrays)
        loop = TrainingLoop(
            grid,
            strategy,
            model,
            nodes,
            config,
            prepared.plan,
            settings,
            evaluation(task, data, config),
            on_round_end,
            completed,
            prepared.clock,
        )
        try:
            loop.run()
        except StrategyError as error:
            reason = f"{error}: {error_place(error.__cause__)}" if error.__cause__ else str(error)
            key = "strategy-args" if config.strategy_args else "strategy"
            raise ConfigError(key, config.strategy_args or config.strategy, reason) from error
    return training.result


def _node_query(grid: Grid, prepared: PreparedRun, settings: ConfigRecord) -> NodeQuery:
    """Return the query, which compares nodes' data with the server's where that is its to do.

    `RayGrid` compares each of its workers' itself. A device loads the data for its query only where
    the user's own code makes or splits them.
    """
    config = prepared.config
    is_own_code = ":" in config.task or ":" in config.partition
    if isinstance(grid, ClientStateGrid) or (is_network_grid(grid) and not is_own_code):
        return NodeQuery()
    return NodeQuery(settings, prepared.check_digests)


def _log_own_data(own_data: Mapping[int, tuple[str, int]], num_clients: int) -> None:
    """Log how many clients have data of their own, and which of them have the same."""
    if not own_data:
        return
    text = "%d of %d clients train on data of their own; the partition is for the others"
    logger.info(text, len(own_data), num_clients)
    same = defaultdict[str, list[int]](list)
    for client, (fingerprint, _) in sorted(own_data.items()):
        same[fingerprint].append(client)
    for clients in same.values():
        if len(clients) > 1:
            text = "clients %s have the same data; give each device a data-dir with its own"
            logger.warning(text, ", ".join(map(str, clients)))


def _warn_of_ignored(config: RunConfig, work: str) -> None:
    """Log the keys of local training that were set for a strategy that does other work."""
    values, defaults = (one.model_dump(by_alias=True) for one in (config, RunConfig()))
    ignored = [f"{key} = {values[key]}" for key in LOCAL_SGD if values[key] != defaults[key]]
    if ignored:
        text = "%s: no effect, since a client computes %s; leave it out"
        logger.warning(text, ", ".join(ignored), work)


def client_config(
    config: RunConfig, data: Dataset, fixed_arrays: str = "", *, with_number: bool = False
) -> ConfigRecord:
    """Return what every client is told: its local work, and which data set exactly to load.

    Args:
        config: The run's settings.
        data: The data set.
        fixed_arrays: The fingerprint of the model's fixed arrays, which do not travel.
        with_number: Whether to tell the number of clients, too.
    """
    optional: dict[str, float | str] = {
        "weight-decay": config.weight_decay,
        "data-dir": data.options.directory,
        "num-clients": config.num_clients if with_number else 0,
        "fixed-arrays": fixed_arrays,
    }
    return ConfigRecord(
        {
            "local-epochs": config.local_epochs,
            "local-steps": config.local_steps,
            "batch-size": config.batch_size,
            "momentum": config.momentum,
            "seed": config.seed,
            "data-source": data.options.source,
            # Only those that there are: recorded bytes of runs without them stay as they are, and
            # Flower 1.41 cannot count the bytes of an empty string.
            **{key: value for key, value in optional.items() if value},
        }
    )
