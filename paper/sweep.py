"""Runs the missing runs of an experiment, and keeps a record of each."""

from pathlib import Path

from fedavg_app.cli.sweep import describe
from fedavg_app.results.finished_run import read_summary
from fedavg_app.sweep.planned_run import PlannedRun
from fedavg_app.sweep.run_all import run_all
from fedavg_app.sweep.run_process import Launch, RunProcess
from paper.experiments import Cell, Experiment, Run, in_order
from paper.records import RECORDS, by_run, find, read_all, read_run, write

# The folder, in that of the results, of interrupted runs, which resume next time.
UNFINISHED = "unfinished"


def sweep(experiment: Experiment, results: Path, launch: Launch, jobs: int, name: str = "") -> None:
    """Run what has no record yet; each finished run leaves a record.

    Args:
        experiment: The table.
        results: The folder of results; records go to its records/<experiment>/.
        launch: Starts a run.
        jobs: How many go at a time.
        name: What the records call the method.

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

    def keep(job: RunProcess) -> tuple[bool, str]:
        left = job.result()
        succeeded, result = False, f"failed: {job.last_line()}"
        if left is not None:
            record = read_run(left)
            succeeded = experiment.data in ("", record.fingerprint)
            result = f"failed: it ran on other data ({record.data}); give --data-dir"
        if left is not None and succeeded:
            result = describe(read_summary(left))
            write(record.model_copy(update={"name": name}), folder / f"{job.planned.slug}.json")
        if left or not job.resumable():
            job.delete()
        return succeeded, result

    missing = [_planned(cell, run) for cell, run in planned if not find(known, run.config)]
    run_all(experiment.name, missing, len(planned), unfinished, launch, keep, jobs)


def _planned(cell: Cell, run: Run) -> PlannedRun:
    name = ", ".join([cell.name, *(f"{key} {value}" for key, value in run.chosen.items())])
    return PlannedRun(name, run.slug, run.config)
