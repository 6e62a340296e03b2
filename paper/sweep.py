"""Runs the missing runs of an experiment, and keeps a record of each."""

from pathlib import Path

from fedavg_app.sweep.run_all import run_all
from fedavg_app.sweep.run_process import Launch, PlannedRun, RunProcess
from paper.experiments import Cell, Experiment, Run, in_order
from paper.records import RECORDS, Record, by_run, find, read_all, read_run, write

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
        record = None if left is None else read_run(left)
        if record is None:
            result = f"failed: {job.last_line()}"
        elif experiment.data not in ("", record.fingerprint):
            result = f"failed: it ran on other data ({record.data}); give --data-dir"
            record = None
        else:
            result = describe(record)
            write(record.model_copy(update={"name": name}), folder / f"{job.planned.slug}.json")
        if left or not job.resumable():
            job.delete()
        return record is not None, result

    missing = [_planned(cell, run) for cell, run in planned if not find(known, run.config)]
    run_all(experiment.name, missing, len(planned), unfinished, launch, keep, jobs)


def _planned(cell: Cell, run: Run) -> PlannedRun:
    name = ", ".join([cell.name, *(f"{key} {value}" for key, value in run.chosen.items())])
    return PlannedRun(name, run.slug, run.config)


def describe(record: Record) -> str:
    """Return a run's result in a few words."""
    best = record.summary["best-accuracy"]
    parts: list[str] = ["diverged"] if record.status == "diverged" else []
    if best is not None:
        parts.append(f"best accuracy {best:.4f}")
    if (rounds := record.summary["rounds-to-target"]) is not None:
        parts.append(f"{rounds:.1f} rounds to {record.summary['target-accuracy']:g}")
    return ", ".join(parts)
