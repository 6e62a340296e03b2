"""A sweep's runs in progress, each a process in its own folder.

A process, not a worker of a pool: it ends with all its children, and resumes from its checkpoint.
"""

import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from fedavg_app.config import RunConfig, TrainingConfig
from fedavg_app.ray_engine.ray_cluster import shared_ray, usable_cpus
from fedavg_app.sweep.planned_run import PlannedRun, arguments, finished_folder, resumable_folder

# Starts a run that makes its folder in the first path, and writes its output to a file "log" there;
# or resumes the run whose folder is the second path.
Launch = Callable[[TrainingConfig, Path, Path | None], "subprocess.Popen[bytes]"]


SIMULATION = Path(__file__).parents[2] / "simulation.py"
# The most that an interruption costs a run whose config sets no checkpoints.
CHECKPOINT_SECONDS = 60


@contextmanager
def shared_launcher(data_dir: Path | None, jobs: int) -> Iterator[Launch]:
    """Yield what starts runs, so many at a time, on one Ray with all usable CPUs.

    Args:
        data_dir: As for `launcher`.
        jobs: How many runs share it at a time.
    """
    workers = max(usable_cpus() // jobs, 1)
    with shared_ray(jobs * workers) as ray_address:
        yield launcher(data_dir, workers, ray_address)


def launcher(data_dir: Path | None, num_workers: int, ray_address: Callable[[], str]) -> Launch:
    """Return a function that starts `simulation.py` on a run, in a new process group.

    Args:
        data_dir: The directory of the data set's files; None leaves that to the experiment.
        num_workers: Ray actors of a federated run.
        ray_address: Returns the Ray cluster to join; empty to start a new one.
    """

    def launch(
        config: TrainingConfig, folder: Path, resumable: Path | None
    ) -> "subprocess.Popen[bytes]":
        common = []
        if isinstance(config, RunConfig):
            common.append(f"--num-workers={num_workers}")
            if address := ray_address():
                common.append(f"--ray-address={address}")
        if directory := data_dir or config.data_dir:
            common.append(f"--data-dir={directory}")
        if resumable is not None:
            words = ["resume", str(resumable), *common]
            if isinstance(config, RunConfig) and config.budget:
                words += [f"--budget={config.budget}"]
                words += [f"--num-server-rounds={config.num_server_rounds}"]
        else:
            words = [*arguments(config, {"run_dir", "data_dir"}), f"--run-dir={folder}", *common]
            if isinstance(config, RunConfig) and not (
                config.checkpoint_every or config.checkpoint_seconds
            ):
                words.append(f"--checkpoint-seconds={CHECKPOINT_SECONDS}")
        with (folder / "log").open("wb") as log:
            # The run inherits the folder's lock and holds it as long as it lives.
            return subprocess.Popen(  # noqa: S603
                [sys.executable, str(SIMULATION), *words],
                stdout=log, stderr=subprocess.STDOUT, start_new_session=True, close_fds=False,
            )  # fmt: skip

    return launch


class RunProcess:
    """A run in progress; an interrupted run resumes from its last checkpoint.

    Args:
        planned: The run.
        launch: Starts it.
        folder: The folder that holds its folder, named by its slug.
    """

    def __init__(self, planned: PlannedRun, launch: Launch, folder: Path) -> None:
        self.planned = planned
        self._folder = folder / planned.slug
        self._started = time.monotonic()
        resumable = self.resumable()
        if resumable is None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder.mkdir()
        self.process = launch(planned.config, self._folder, resumable)

    def resumable(self) -> Path | None:
        """Return the folder of this run if it has a checkpoint."""
        return resumable_folder(self._folder, self.planned.config)

    @property
    def seconds(self) -> float:
        """How long it has gone on."""
        return time.monotonic() - self._started

    def result(self) -> Path | None:
        """Return the folder of the run; None if it did not finish."""
        return finished_folder(self._folder)

    def last_line(self) -> str:
        """Return the last line of the run's output."""
        lines = (self._folder / "log").read_text(encoding="utf-8", errors="replace").split("\n")
        found = [line.strip() for line in lines if line.strip()]
        return found[-1] if found else f"exit status {self.process.returncode}"

    def delete(self) -> None:
        """Delete the run's folder."""
        shutil.rmtree(self._folder, ignore_errors=True)
