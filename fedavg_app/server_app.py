"""The ServerApp: config -> task and strategy -> rounds -> artefacts."""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Context
from flwr.serverapp import Grid, ServerApp

from fedavg_app import checkpoint
from fedavg_app.checkpoint import Checkpoint, Remembering
from fedavg_app.config import RunConfig, parse_config
from fedavg_app.errors import USER_ERRORS, ConfigError
from fedavg_app.evaluation import CentralTest, Evaluate
from fedavg_app.history import Listen, RoundRecord
from fedavg_app.nodes import Roster
from fedavg_app.partitions import partition
from fedavg_app.parts import load_parts
from fedavg_app.plan import make_plan
from fedavg_app.recording import Recording
from fedavg_app.rounds import Outcome, run_rounds
from tasks.base import Task
from tasks.data.store import Dataset

app = ServerApp()
logger = logging.getLogger("fedavg_app.server_app")


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the app on whatever grid this is: a simulation's or a deployment's."""
    try:
        run(grid, context.run_config)
    except USER_ERRORS as error:
        logger.error("run failed: %s", error)
        raise


def run(
    grid: Grid,
    run_config: Mapping[str, Any],
    evaluation: Callable[[Task, Dataset, RunConfig], Evaluate] = CentralTest,
    listeners: Sequence[Listen] = (),
) -> Outcome:
    """Run the whole experiment that the run config describes; its results are on disk afterwards.

    Args:
        grid: Reaches the clients.
        run_config: See `RunConfig`.
        evaluation: Returns what tests the global model.
        listeners: See `Recording`.

    Raises:
        ConfigError: A value that cannot be used.
        DataError: The data set cannot be had.
        RunError: The run could not go on.
    """
    config = parse_config(run_config)
    standing = checkpoint.load(config) if config.resume else None
    task, strategy = load_parts(config)
    data = task.dataset(config.data_options)
    # Computed here, before any client needs it: what cannot be split ends the run at once.
    for split in ("train", "test") if config.fraction_evaluate else ("train",):
        partition(data, split, config)
    plan = make_plan(config, task)
    roster = Roster(grid, config.num_clients)
    roster.assemble(config.min_nodes, config.node_timeout)
    arrays, done = ArrayRecord(task.initial_model(config.seed).state_dict()), []
    if standing is not None:
        if standing.data != data.fingerprint:
            fix = "these are not the data of the run to resume; give those"
            raise ConfigError("data-dir", config.data_dir, fix)
        strategy, arrays, done = standing.strategy, standing.arrays, standing.records
        if isinstance(grid, Remembering):
            grid.restore_states(standing.states)
    with Recording(config, task, plan, data, done, listeners) as recording:
        strategy.summary()
        saved = Checkpoint(recording.folder, data.fingerprint)

        def on_round(record: RoundRecord, arrays: ArrayRecord) -> None:
            recording.add(record)
            if config.checkpoint_every and record.round % config.checkpoint_every == 0:
                changed = grid.changed_states() if isinstance(grid, Remembering) else {}
                saved.save(record.round, strategy, arrays, changed)

        outcome = run_rounds(
            grid,
            strategy,
            arrays,
            roster,
            plan,
            client_config(config, data),
            evaluation(task, data, config),
            on_round,
            done,
        )
        recording.finish(outcome)
    return outcome


def client_config(config: RunConfig, data: Dataset) -> ConfigRecord:
    """Return what every client is told: its local work, and which data set exactly to load."""
    # Only where there is one: Flower 1.41 cannot count the bytes of an empty string.
    directory = {"data-dir": data.options.directory} if data.options.directory else {}
    return ConfigRecord(
        {
            "local-epochs": config.local_epochs,
            "local-steps": config.local_steps,
            "batch-size": config.batch_size,
            "momentum": config.momentum,
            "seed": config.seed,
            "data-source": data.options.source,
            **directory,
        }
    )
