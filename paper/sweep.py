"""Runs the missing runs of an experiment, and keeps a record of each."""

from dataclasses import replace
from pathlib import Path

from fedavg_app.cli.sweep import describe
from fedavg_app.errors import ConfigError
from fedavg_app.results.finished_run import read_summary
from fedavg_app.server.preparation import load_data, load_task
from fedavg_app.sweep.run_all import run_all
from fedavg_app.sweep.run_process import Launch, RunProcess
from paper.experiments import Experiment, in_order
from paper.records import RECORDS, by_run, find, read_all, read_run, write

# The folder, in that of the results, of interrupted runs, which resume next time.
UNFINISHED = "unfinished"


def check_data(experiment: Experiment, data_dir: Path | None) -> None:
    """Check before anything runs that the data are those that the experiment names.

    Raises:
        ConfigError: They are others.
        DataError: There are none.
    """
    _, run = in_order(experiment.cells())[0]
    located = run.config.model_copy(update={"data_dir": str(data_dir or "")})
    data = load_data(located, load_task(located))
    if data.fingerprint != experiment.data:
        fix = f"these are not the data of {experiment.name} but {data.description}"
        raise ConfigError("data-dir", located.data_dir, fix)


def sweep(experiment: Experiment, results: Path, launch: Launch, jobs: int) -> None:
    """Run what has no record yet; each finished run leaves a record.

    Args:
        experiment: The table.
        results: The folder of results; records go to its records/<experiment>/.
        launch: Starts a run.
        jobs: How many go at a time.

    Raises:
        ConfigError: A run's settings cannot be used, a record cannot be read, or the experiment is
            being swept already.
        RunError: Runs failed; all others were done first.
    """
    planned = in_order(experiment.cells())
    # The records of all experiments, for tables have runs in common.
    known = by_run(read_all(results / RECORDS), experiment.data)
    folder, unfinished = (results / kind / experiment.name for kind in (RECORDS, UNFINISHED))
    folder.mkdir(parents=True, exist_ok=True)
    names = {run.slug: cell.row.name if experiment.board else "" for cell, run in planned}

    def keep(job: RunProcess) -> tuple[bool, str]:
        left = job.result()
        succeeded, result = False, f"failed: {job.last_line()}"
        if left is not None:
            record = read_run(left)
            succeeded = experiment.data in ("", record.fingerprint)
            result = f"failed: it ran on other data ({record.data}); give --data-dir"
        if left is not None and succeeded:
            result = describe(read_summary(left))
            record = record.model_copy(update={"name": names[job.planned.slug]})
            write(record, folder / f"{job.planned.slug}.json")
        if left or not job.resumable():
            job.delete()
        return succeeded, result

    missing = [
        replace(run, name=f"{cell.name}, {run.name}")
        for cell, run in planned
        if not find(known, run.config)
    ]
    run_all(experiment.name, missing, len(planned), unfinished, launch, keep, jobs)
