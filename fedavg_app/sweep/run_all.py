"""Makes the runs that a sweep lacks, several at a time."""

import fcntl
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path

import typer

from fedavg_app.errors import ConfigError, RunError
from fedavg_app.sweep.planned_run import PlannedRun
from fedavg_app.sweep.run_process import Launch, RunProcess

POLL_SECONDS = 0.1
# A run that is terminated has this long before it is killed.
GRACE_SECONDS = 15.0

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


@contextmanager
def exclusive_folder(folder: Path) -> Iterator[None]:
    """Lock a folder for this process and those it starts, as long as one of them lives.

    Raises:
        ConfigError: Another process has locked it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            fix = "a sweep, or runs of a killed sweep, are still running in it; wait, or end them"
            raise ConfigError("experiment", folder.name, fix) from error
        os.set_inheritable(lock.fileno(), True)
        yield


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Deliver SIGINT and SIGTERM only after the block, so that a process it starts is known."""
    came: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM)

    def remember(number: int, _: object) -> None:
        came.append(number)

    before = [signal.signal(number, remember) for number in numbers]
    try:
        yield
    finally:
        for each, handler in zip(numbers, before, strict=True):
            signal.signal(each, handler)
        for number in came:
            signal.raise_signal(number)


def terminate(running: Sequence[RunProcess]) -> None:
    """Terminate the runs and their child processes; kill those that do not end in time."""
    try:
        for run in running:
            run.process.terminate()
        deadline = time.monotonic() + GRACE_SECONDS
        for run in running:
            with suppress(subprocess.TimeoutExpired):
                run.process.wait(max(deadline - time.monotonic(), 0))
    finally:
        with uninterrupted():
            for run in running:
                with suppress(ProcessLookupError):
                    os.killpg(run.process.pid, signal.SIGKILL)
                run.process.wait()
                if not (run.result() or run.resumable()):
                    run.delete()
