"""Runs the missing runs of an experiment, several at a time, each in a process of its own."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import fedavg_app
from fedavg_app.config import RunConfig, TrainingConfig
from fedavg_app.errors import ConfigError, RunError
from fedavg_app.reproduction.experiments import Cell, Experiment, Run, in_order
from fedavg_app.reproduction.progress import SweepProgress
from fedavg_app.reproduction.records import (
    RECORDS,
    Identity,
    Record,
    Stored,
    arguments,
    by_run,
    identity,
    read_all,
    read_run,
    write,
)

# Starts a run that makes its folder in the given one, and a file "log" there of what it says.
Launch = Callable[[TrainingConfig, Path], "subprocess.Popen[bytes]"]

SIMULATION = Path(fedavg_app.__file__).parents[1] / "simulation.py"
POLL_SECONDS = 0.1
# A run that is asked to end has this long before it is killed.
GRACE_SECONDS = 15.0


def launcher(data_dir: str, num_workers: int) -> Launch:
    """Return what starts `simulation.py` on a run, in a process group of its own.

    Args:
        data_dir: The directory of the data set's files; empty leaves that to the experiment.
        num_workers: Ray actors of a federated run.

    Raises:
        ConfigError: There is no such directory.
    """
    if data_dir and not Path(data_dir).expanduser().is_dir():
        # All runs would fail, each after its start.
        raise ConfigError(
            "data-dir", data_dir, "is not a directory; give one with the data's files"
        )

    def launch(config: TrainingConfig, folder: Path) -> "subprocess.Popen[bytes]":
        directory = data_dir or config.data_dir
        command = [
            sys.executable,
            str(SIMULATION),
            *arguments(config, {"run_dir", "data_dir"}),
            f"--run-dir={folder}",
            *([f"--data-dir={directory}"] if directory else []),
            *([f"--num-workers={num_workers}"] if isinstance(config, RunConfig) else []),
        ]
        with (folder / "log").open("wb") as log:
            return subprocess.Popen(  # noqa: S603
                command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )

    return launch


def sweep(
    experiment: Experiment,
    results: Path,
    launch: Launch,
    jobs: int,
    budget_seconds: float | None = None,
) -> None:
    """Run what has no record yet; each run that ends leaves one.

    However this itself ends, the runs in progress end with it, and nothing of them is kept.

    Args:
        experiment: The table.
        results: The folder of results; records go to its records/<experiment>/.
        launch: Starts a run.
        jobs: How many go at a time.
        budget_seconds: After this long no run is started, and those in progress are ended; None
            means never.

    Raises:
        ConfigError: A run's settings cannot be used, or a record cannot be read or written.
        RunError: Runs failed; all others were done first.
    """
    deadline = None if budget_seconds is None else time.monotonic() + budget_seconds
    folder = _folder(experiment, results)
    planned = in_order(experiment.cells())
    known = _known(experiment, results)
    waiting = [(cell, run) for cell, run in planned if identity(run.config) not in known]
    running: list[_Job] = []
    failed = 0
    with SweepProgress(experiment.name, len(planned), len(waiting), jobs) as progress:
        try:
            while waiting or running:
                if deadline is not None and time.monotonic() >= deadline:
                    progress.say(f"the time is over: {len(waiting) + len(running)} not run")
                    break
                while waiting and len(running) < jobs:
                    running.append(_Job(*waiting.pop(0), launch))
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
                    job.close()
                time.sleep(POLL_SECONDS)
        finally:
            _end(running)
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
    missing = {
        identity(run.config): run
        for _, run in in_order(experiment.cells())
        if identity(run.config) not in known
    }
    found: dict[str, Record] = {}
    for summary in sorted(runs.rglob("summary.json")):
        record = read_run(summary.parent)
        if record is None or not _fits(record, experiment):
            continue
        if run := missing.get(identity(record.parsed())):
            found[run.slug] = record
    for slug, record in found.items():
        write(record, folder / f"{slug}.json")
    return len(found)


class _Job:
    """A run in progress, in a temporary folder."""

    def __init__(self, cell: Cell, run: Run, launch: Launch) -> None:
        self.run = run
        self.name = ", ".join([cell.name, *(f"{key} {value}" for key, value in run.chosen.items())])
        self._temporary = tempfile.TemporaryDirectory(
            prefix="fedavg-app-sweep-", ignore_cleanup_errors=True
        )
        self._folder = Path(self._temporary.name)
        self._started = time.monotonic()
        self.seconds = 0.0
        self.process = launch(run.config, self._folder)

    def ended(self) -> bool:
        self.seconds = time.monotonic() - self._started
        return self.process.poll() is not None

    def record(self) -> Record | None:
        """Return what the run left; None if it failed."""
        folders = [path.parent for path in self._folder.glob("*/summary.json")]
        return read_run(folders[0]) if folders else None

    def last_line(self) -> str:
        """Return the last thing the run said."""
        lines = (self._folder / "log").read_text(encoding="utf-8", errors="replace").split("\n")
        said = [line.strip() for line in lines if line.strip()]
        return said[-1] if said else f"exit status {self.process.returncode}"

    def close(self) -> None:
        self._temporary.cleanup()


def _end(running: Sequence[_Job]) -> None:
    """End the runs and whatever they started: at first by asking."""
    for job in running:
        job.process.terminate()
    deadline = time.monotonic() + GRACE_SECONDS
    try:
        for job in running:
            with suppress(subprocess.TimeoutExpired):
                job.process.wait(max(deadline - time.monotonic(), 0))
    finally:
        for job in running:
            with suppress(ProcessLookupError):
                os.killpg(job.process.pid, signal.SIGKILL)
            job.process.wait()
            job.close()


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
