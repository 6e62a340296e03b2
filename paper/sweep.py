"""Runs the missing runs of an experiment, several at a time, each in a process of its own."""

import time
from datetime import timedelta
from pathlib import Path

import typer

from fedavg_app.errors import RunError
from paper.experiments import Experiment, in_order
from paper.records import RECORDS, Record, by_run, find, read_all, write
from paper.run_process import Launch, RunProcess, exclusive_folder, terminate, uninterrupted

POLL_SECONDS = 0.1
# The folder of runs that were interrupted, and go on the next time, in that of the results.
UNFINISHED = "unfinished"


def sweep(experiment: Experiment, results: Path, launch: Launch, jobs: int) -> None:
    """Run what has no record yet; each run that ends leaves one.

    However this itself ends, the runs in progress end with it; if it is killed outright, those that
    share its Ray end soon afterwards. Where they have a checkpoint, they go on from it the next
    time.

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
    waiting = [(cell, run) for cell, run in planned if not find(known, run.config)]
    running: list[RunProcess] = []
    failed = 0
    missing, started = len(waiting), time.monotonic()
    typer.echo(f"{experiment.name}: {len(planned) - missing} of {len(planned)} runs are done")
    with exclusive_folder(unfinished):
        try:
            while waiting or running:
                while waiting and len(running) < jobs:
                    with uninterrupted():
                        running.append(RunProcess(*waiting.pop(0), launch, unfinished))
                for job in [job for job in running if job.process.poll() is not None]:
                    record = job.record()
                    if record is None:
                        result = f"failed: {job.last_line()}"
                    elif experiment.data not in ("", record.fingerprint):
                        result = f"failed: it ran on other data ({record.data}); give --data-dir"
                        record = None
                    else:
                        result = describe(record)
                        write(record, folder / f"{job.run.slug}.json")
                    failed += record is None
                    running.remove(job)
                    left = len(waiting) + len(running)
                    eta = (time.monotonic() - started) / (missing - left) * left
                    place = f"{len(planned) - left}/{len(planned)}  {job.name}: {result}"
                    typer.echo(f"{place}, {job.seconds:.0f} s  ETA {timedelta(seconds=round(eta))}")
                    job.delete()
                time.sleep(POLL_SECONDS)
        finally:
            terminate(running)
    if failed:
        raise RunError(f"{failed} of the runs failed; the lines above say why")


def describe(record: Record) -> str:
    """Return a run's result in a few words."""
    best = record.summary["best-accuracy"]
    parts: list[str] = ["diverged"] if record.status == "diverged" else []
    if best is not None:
        parts.append(f"best accuracy {best:.4f}")
    if (rounds := record.summary["rounds-to-target"]) is not None:
        parts.append(f"{rounds:.1f} rounds to {record.summary['target-accuracy']:g}")
    return ", ".join(parts)
