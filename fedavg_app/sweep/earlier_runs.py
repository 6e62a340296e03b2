"""What a sweep or plan that is started again finds: finished runs, and runs that can resume."""

from contextlib import suppress
from pathlib import Path

from fedavg_app.config import RunConfig, TrainingConfig
from fedavg_app.errors import ConfigError
from fedavg_app.results.checkpoint import has_checkpoint, saved_config
from fedavg_app.results.finished_run import STATUSES, read_summary
from fedavg_app.sweep.identity import identity


def finished_folder(folder: Path) -> Path | None:
    """Return the folder of the finished run in this folder; None if there is none."""
    ended = (path.parent for path in folder.glob("*/summary.json"))
    return next((run for run in ended if read_summary(run)["status"] in STATUSES), None)


def resumable_folder(folder: Path, planned: TrainingConfig) -> Path | None:
    """Return the folder of the run in this folder that can resume as the planned run."""
    for path in folder.glob("*/"):
        with suppress(ConfigError):
            saved = saved_config(str(path))
            if has_checkpoint(path) and _resumes_as(saved, planned):
                return path
    return None


def _resumes_as(saved: RunConfig, planned: TrainingConfig) -> bool:
    """Return whether a run can resume as the planned run, which may have a larger budget."""
    more = isinstance(planned, RunConfig) and planned.budget and saved.budget
    if more and planned.num_server_rounds >= saved.num_server_rounds:
        names = "budget", "num_server_rounds"
        saved = saved.model_copy(update={name: getattr(planned, name) for name in names})
    return identity(saved) == identity(planned)
