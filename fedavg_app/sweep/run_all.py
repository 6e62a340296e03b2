"""Makes the runs that a sweep lacks, several at a time."""

import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path

import typer

from fedavg_app.errors import RunError
from fedavg_app.sweep.run_process import (
    Launch,
    PlannedRun,
    RunProcess,
    exclusive_folder,
    terminate,
    uninterrupted,
)

POLL_SECONDS = 0.1

# Called with a run that has ended: stores its result; returns whether it has a result, and a text.
Keep = Callable[[RunProcess], tuple[bool, str]]


def run_all(
    name: str,
    missing: Sequence[PlannedRun],
    num_planned: int,
    folder: Path,
    launch: Launch,
    keep: Keep,
    jobs: int,
) -> None:
    """Make the missing runs, and print a line for each run that ends.

    However this call ends, the runs in progress end with it; if it is killed outright, those that
    share its Ray end soon afterwards. If they have a checkpoint, they resume from it the next time.
    After a signal, what is done, and that the same command continues, is printed.

    Args:
        name: Of the sweep.
        missing: The runs to do, in order.
        num_planned: How many runs the sweep has, those that are done included.
        folder: Where each run has a folder.
        launch: Starts a run.
        keep: Keeps its result.
        jobs: How many go at a time.

    Raises:
        ConfigError: The sweep is already running.
        RunError: Runs failed; all others were done first.
    """
    waiting, running = list(missing), list[RunProcess]()
    failed, started = 0, time.monotonic()
    typer.echo(f"{name}: {num_planned - len(missing)} of {num_planned} runs are done")
    with exclusive_folder(folder):
        try:
            while waiting or running:
                while waiting and len(running) < jobs:
                    with uninterrupted():
                        running.append(RunProcess(waiting.pop(0), launch, folder))
                for job in [job for job in running if job.process.poll() is not None]:
                    succeeded, result = keep(job)
                    failed += not succeeded
                    running.remove(job)
                    left = len(waiting) + len(running)
                    eta = (time.monotonic() - started) / (len(missing) - left) * left
                    place = f"{num_planned - left}/{num_planned}  {job.planned.name}: {result}"
                    typer.echo(f"{place}, {job.seconds:.0f} s  ETA {timedelta(seconds=round(eta))}")
                time.sleep(POLL_SECONDS)
        except (KeyboardInterrupt, SystemExit):
            typer.echo(f"{name}: interrupted; ending the runs in progress: {len(running)}")
            terminate(running)
            for job in [job for job in running if job.result() is not None]:
                keep(job)  # it came to its end at the same time
                running.remove(job)
            done = num_planned - len(waiting) - len(running) - failed
            resumable = sum(job.resumable() is not None for job in running)
            running.clear()
            text = f"{name}: {done} of {num_planned} runs are done; the same command continues "
            typer.echo(f"{text}with the others, {resumable} of them from a checkpoint")
            raise
        finally:
            terminate(running)
    if failed:
        raise RunError(f"{failed} of the runs failed; the lines above say why")
