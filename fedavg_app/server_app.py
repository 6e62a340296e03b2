"""The ServerApp: config -> components -> training loop, with its results in a folder."""

import sys
from collections.abc import Callable, Mapping, Sequence

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedavg_app.callbacks.base import MakeCallback, TrainingRun
from fedavg_app.callbacks.training_callbacks import Checkpoints, TrainingCallbacks
from fedavg_app.config import RunConfig, parse_config, warn_of_ignored, with_clients
from fedavg_app.errors import USER_ERRORS, ConfigError
from fedavg_app.results.checkpoint import ClientStateGrid
from fedavg_app.results.history import TrainingResult
from fedavg_app.server.global_evaluation import TEST, VALIDATION, CentralEvaluation, Evaluate
from fedavg_app.server.network_grid import NetworkGrid, count_nodes, is_network_grid
from fedavg_app.server.node_registry import find_nodes
from fedavg_app.server.preparation import PreparedRun, prepare
from fedavg_app.server.strategy_setup import reporting_strategy_errors, warn_of_unknown_objective
from fedavg_app.server.training_loop import TrainingLoop
from strategies.rounds.runner import Runner
from tasks.base import Task
from tasks.data.dataset import Dataset

app = ServerApp()


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
    evaluation: Callable[[Task, Dataset, RunConfig, str], Evaluate] = CentralEvaluation,
    callbacks: Sequence[MakeCallback] = (),
    *,
    tell_clients_number: bool = False,
) -> TrainingResult:
    """Run the training; its results are on disk afterwards.

    Args:
        grid: Reaches the clients.
        prepared: The run, as `prepare` returns it.
        evaluation: Returns what evaluates the global model on a split.
        callbacks: Make further callbacks, beside the run's files and the console.
        tell_clients_number: Whether messages say how many clients there are, which the run config
            that clients see does not.

    Raises:
        ConfigError: The run's folder or a callback cannot be made, or a strategy written for Flower
            failed.
        RunError: The run could not continue.
    """
    config, strategy, data = prepared.config, prepared.strategy, prepared.data
    told = prepared.told(with_number=tell_clients_number)
    nodes = find_nodes(grid, config, told, prepared.check_digests)
    if prepared.state is not None:
        _restore_clients(grid, strategy, prepared.state.client_states)

    training_run = TrainingRun(
        config, prepared.task, prepared.plan, data, prepared.completed,
        local_work=strategy.local_work or config.local_work,
        model=prepared.state.model if prepared.state else None,
        best_model=prepared.state.best_model if prepared.state else None,
        own_data=nodes.own_data,
    )  # fmt: skip
    checkpoints = Checkpoints(strategy, grid)
    with TrainingCallbacks(training_run, callbacks, checkpoints) as training:
        strategy.summary()
        nodes.log_own_data()
        if strategy.local_work:
            warn_of_ignored(config, strategy.local_work)
        warn_of_unknown_objective(config, prepared.plan.objective.name)
        loop = TrainingLoop(
            grid,
            strategy,
            prepared.sent_model,
            nodes,
            config,
            prepared.plan,
            told,
            evaluation(prepared.task, data, config, TEST),
            prepared.task.test_metrics(),
            lambda metrics, sent: training.on_round_end(metrics, prepared.model.complete(sent)),
            training.result.history,
            prepared.clock,
            prepared.facts(nodes.own_data),
            evaluation(prepared.task, data, config, VALIDATION) if prepared.validates else None,
        )
        with reporting_strategy_errors(config):
            loop.run()
    return training.result


def _restore_clients(grid: Grid, strategy: Runner, states: Mapping[int, bytes]) -> None:
    """Give the clients of a resumed run their states, or tell the strategy that they have none."""
    if states and isinstance(grid, ClientStateGrid):
        grid.restore_states(states)
    else:
        # Flower keeps a client's state for one series of runs; `flwr run` begins a new one, and
        # the checkpoint of one has no states.
        strategy.forget_clients()
