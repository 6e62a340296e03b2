"""Runs the missing runs of an experiment, several at a time, each in a process of its own."""

import time
from pathlib import Path

from fedavg_app.errors import ConfigError, RunError
from reproduction.experiments import Experiment, in_order
from reproduction.records import (
    RECORDS,
    Identity,
    Record,
    Stored,
    by_run,
    find,
    read_all,
    read_run,
    write,
)
from reproduction.run_process import Launch, RunProcess, exclusive_folder, terminate
from reproduction.sweep_progress import SweepProgress

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
    display = SweepProgress(experiment.name, len(planned), len(waiting), jobs)
    with exclusive_folder(unfinished), display as progress:
        try:
            while waiting or running:
                if deadline is not None and time.monotonic() >= deadline:
                    progress.say(f"the time is over: {len(waiting) + len(running)} not run")
                    break
                while waiting and len(running) < jobs:
                    running.append(RunProcess(*waiting.pop(0), launch, unfinished))
                for job in [job for job in running if job.ended()]:
                    record, said = job.record(), job.last_line()
                    if record is not None and not _fits(record, experiment):
                        said = f"it ran on other data ({record.data}); give --data-dir"
                        record = None
                    if record is not None:
                        write(record, folder / f"{job.run.slug}.json")
                    failed += record is None
                    progress.ended(job.name, record, job.seconds, said)
                    running.remove(job)
                    job.delete()
                time.sleep(POLL_SECONDS)
        finally:
            terminate(running)
    if failed:
        raise RunError(f"{failed} of the runs failed; the lines above say why")


def adopt(experiment: Experiment, results: Path, runs: Path) -> int:
    """Take in the experiment's runs that were done by hand; return how many were new.

    Args:
        experiment: The table.
        results: The folder of results.
        runs: A folder with folders of runs, however deep.

    Raises:
        ConfigError: There is no such folder, or a run's folder or a record is damaged.
    """
    if not runs.is_dir():
        raise ConfigError("adopt", str(runs), "is not a directory; give one with runs' folders")
    folder = _folder(experiment, results)
    known = _known(experiment, results)
    left = [
        Stored(summary.parent, record, record.identity)
        for summary in sorted(runs.rglob("summary.json"))
        if (record := read_run(summary.parent))
    ]
    by_hand = by_run(left, experiment.data)
    new = 0
    for _, run in in_order(experiment.cells()):
        if find(known, run.config):
            continue
        if found := find(by_hand, run.config):
            write(found.record, folder / f"{run.slug}.json")
            known[found.identity] = found
            new += 1
    return new


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
