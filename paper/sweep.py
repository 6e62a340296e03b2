"""Runs the missing runs of an experiment, several at a time, each in a process of its own."""

import time
from datetime import timedelta
from pathlib import Path

import typer

from fedavg_app.errors import ConfigError, RunError
from paper.experiments import Experiment, in_order
from paper.records import (
    RECORDS,
    Identity,
    Record,
    Stored,
    by_run,
    find,
    read_all,
    write,
)
from paper.run_process import Launch, RunProcess, exclusive_folder, terminate, uninterrupted

POLL_SECONDS = 0.1
# The folder of runs that were interrupted, and go on the next time, in that of the results.
UNFINISHED = "unfinished"


def sweep(
    experiment: Experiment,
    results: Path,
    launch: Launch,
    jobs: int,
    budget_seconds: float | None = None,
) -> None:
    """Run what has no record yet; each run that ends leaves one.

    However this itself ends, the runs in progress end with it; if it is killed outright, those that
    share its Ray end soon afterwards. Where they have a checkpoint, they go on from it the next
    time.

    Args:
        experiment: The table.
        results: The folder of results; records go to its records/<experiment>/.
        launch: Starts a run.
        jobs: How many go at a time.
        budget_seconds: After this long no run is started, and those in progress are ended; None
            means never.

    Raises:
        ConfigError: A run's settings cannot be used, a record cannot be read or written, or the
            experiment is being swept already.
        RunError: Runs failed; all others were done first.
    """
    deadline = None if budget_seconds is None else time.monotonic() + budget_seconds
    folder = _folder(experiment, results)
    planned = in_order(experiment.cells())
    known = _known(experiment, results)
    waiting = [(cell, run) for cell, run in planned if not find(known, run.config)]
    running: list[RunProcess] = []
    failed = 0
    unfinished = results / UNFINISHED / experiment.name
    missing, started = len(waiting), time.monotonic()
    typer.echo(f"{experiment.name}: {len(planned) - missing} of {len(planned)} runs are done")
    with exclusive_folder(unfinished):
        try:
            while waiting or running:
                if deadline is not None and time.monotonic() >= deadline:
                    typer.echo(f"the time is over: {len(waiting) + len(running)} not run")
                    break
                while waiting and len(running) < jobs:
                    with uninterrupted():
                        running.append(RunProcess(*waiting.pop(0), launch, unfinished))
                for job in [job for job in running if job.ended()]:
                    record, said = job.record(), job.last_line()
                    if record is not None and not _fits(record, experiment):
                        said = f"it ran on other data ({record.data}); give --data-dir"
                        record = None
                    if record is not None:
                        write(record, folder / f"{job.run.slug}.json")
                    failed += record is None
                    running.remove(job)
                    left = len(waiting) + len(running)
                    eta = (time.monotonic() - started) / (missing - left) * left
                    result = f"failed: {said}" if record is None else describe(record)
                    place = f"{len(planned) - left}/{len(planned)}  {job.name}: {result}"
                    typer.echo(f"{place}, {job.seconds:.0f} s  ETA {timedelta(seconds=round(eta))}")
                    job.delete()
                time.sleep(POLL_SECONDS)
        finally:
            terminate(running)
    if failed:
        raise RunError(f"{failed} of the runs failed; the lines above say why")


def _known(experiment: Experiment, results: Path) -> dict[Identity, Stored]:
    """Return the records of all experiments, for tables have runs in common."""
    return by_run(read_all(results / RECORDS), experiment.data)


def _fits(record: Record, experiment: Experiment) -> bool:
    """Return whether the run was on the experiment's data."""
    return experiment.data in ("", record.fingerprint)


def _folder(experiment: Experiment, results: Path) -> Path:
    folder = results / RECORDS / experiment.name
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        fix = f"cannot write there ({error.strerror}); give a writable directory"
        raise ConfigError("results", str(results), fix) from error
    return folder


def describe(record: Record) -> str:
    """Return a run's result in a few words."""
    best = record.summary["best-accuracy"]
    parts: list[str] = ["diverged"] if record.status == "diverged" else []
    if best is not None:
        parts.append(f"best accuracy {best:.4f}")
    if (rounds := record.summary["rounds-to-target"]) is not None:
        parts.append(f"{rounds:.1f} rounds to {record.summary['target-accuracy']:g}")
    return ", ".join(parts)
