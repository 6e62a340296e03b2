"""Checkpoints: all that a run's next round depends on, in one file.

That is the strategy, the model and, if the grid has them, the clients' states. There is no random
state to keep: every draw follows from the seed, the round and the client. The history is beside it,
and is cut back to the checkpoint's round.

The file is replaced atomically: a run that is killed at any moment, or a machine that loses its
power, leaves either this checkpoint or the previous one. A digest at its end reveals damage.
"""

import hashlib
import json
import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from flwr.app import Array, ArrayRecord

from fedavg_app.config import (
    Effect,
    RunConfig,
    fields_with,
    kebab,
    migrate_saved_keys,
    parse_config,
)
from fedavg_app.errors import ConfigError, RunError
from fedavg_app.results.history import RoundMetrics, read_history
from fedavg_app.results.run_folder import (
    CONFIG_FILE,
    HISTORY_FILE,
    check_run_dir,
    locked,
    reporting_write_errors,
)
from strategies.rounds.runner import Runner
from tasks.data.atomic_file import flush, replacing

CHECKPOINT_FILE = "checkpoint"


@runtime_checkable
class ClientStateGrid(Protocol):
    """A grid that can save and restore its clients' states."""

    def client_states(self) -> dict[int, bytes]:
        """Return the clients' states, pickled, by partition."""

    def restore_states(self, states: Mapping[int, bytes]) -> None:
        """Give clients the states that `client_states` returned."""


@dataclass(frozen=True)
class RunState:
    """The state of a run after a round.

    Attributes:
        strategy: The strategy, with what it keeps from round to round.
        history: The metrics of the rounds up to that one.
        data: The fingerprint of the data set.
        client_states: The clients' states, pickled, by partition.
        best_model: The model with the best objective so far.
        data_source: Where the data set came from; "auto" might find another source on resume, such
            as the full data for an embedded part.
        resolved: What the config's "auto" meant as the run began, by field: the task's own values
            may have changed on resume.
    """

    strategy: Runner
    model: ArrayRecord
    history: list[RoundMetrics]
    data: str
    client_states: Mapping[int, bytes] = field(default_factory=dict)
    best_model: ArrayRecord | None = None
    data_source: str = "auto"
    resolved: Mapping[str, float | str] = field(default_factory=dict)


def has_checkpoint(run_folder: Path) -> bool:
    """Return whether the run in a folder can be resumed."""
    return (run_folder / CHECKPOINT_FILE).is_file()


def delete_checkpoint(run_folder: Path) -> None:
    """Delete the run's checkpoint, if it has one."""
    (run_folder / CHECKPOINT_FILE).unlink(missing_ok=True)


def save_checkpoint(run_folder: Path, config: RunConfig, state: RunState) -> None:
    """Replace the run's checkpoint.

    Args:
        run_folder: The run's folder, with its history.
        config: The run's settings.
        state: The state; the last round is all that is needed of its history.

    Raises:
        RunError: It cannot be written, or the strategy cannot be pickled.
    """
    path = run_folder / CHECKPOINT_FILE
    try:
        with reporting_write_errors(run_folder):
            flush(run_folder / HISTORY_FILE)
            with replacing(path) as temporary, temporary.open("w+b") as file:
                _Pickler(file, pickle.HIGHEST_PROTOCOL).dump((_result_keys(config), state))
                file.seek(0)
                file.write(hashlib.file_digest(file, "sha256").digest())
            flush(run_folder)
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        raise RunError(f"cannot write the checkpoint {path}: {error}") from error


def check_run_folder(config: RunConfig) -> None:
    """Check that the run can write its folder, and that the one to resume can be resumed.

    Raises:
        ConfigError: It cannot, or another process trains the run to resume.
    """
    if not config.resume:
        check_run_dir(config)
        return
    saved_config(config.resume)  # a run at all
    folder = Path(config.resume).expanduser()
    if not has_checkpoint(folder):
        fix = "it has no checkpoint; start it again, with checkpoint-seconds"
        raise ConfigError("resume", config.resume, fix)
    with locked(folder):
        pass


def load_checkpoint(config: RunConfig) -> RunState:
    """Return the state of the run that the config's "resume" names.

    A checkpoint is unpickled: load only those of your own runs.

    Raises:
        ConfigError: The checkpoint cannot be read, or its config differs in a key that changes the
            result.
    """
    run_folder = Path(config.resume).expanduser()
    keys: dict[str, Any]
    state: RunState
    try:
        content = memoryview((run_folder / CHECKPOINT_FILE).read_bytes())
        if hashlib.sha256(content[:-32]).digest() != content[-32:]:
            raise ValueError(f"{CHECKPOINT_FILE} is damaged")
        keys, state = pickle.loads(content[:-32])  # noqa: S301 - the run's own, see above
        history = read_history(run_folder / HISTORY_FILE, state.history[-1].round)
        state = replace(state, history=history)
    except Exception as error:  # whatever unpickling a checkpoint of another version raises
        fix = f"its checkpoint cannot be read ({error}); start the run again"
        raise ConfigError("resume", config.resume, fix) from error
    for key, value in _result_keys(config).items():
        if value != keys.get(key):
            raise ConfigError(key, value, f"the run to resume has {keys.get(key)!r}; give that")
    return state


def saved_config(run_folder: str) -> RunConfig:
    """Return the config of the run in a folder.

    Raises:
        ConfigError: There is none that this version can read.
    """
    path = Path(run_folder).expanduser() / CONFIG_FILE
    try:
        return parse_config(migrate_saved_keys(json.loads(path.read_text(encoding="utf-8"))))
    except (OSError, ValueError) as error:
        fix = f"give the folder of a federated run; {CONFIG_FILE} cannot be read from it"
        raise ConfigError("resume", run_folder, fix) from error


def _result_keys(config: RunConfig) -> dict[str, Any]:
    """Return the values of the keys that must not change on resume."""
    free = fields_with(RunConfig, Effect.FREE_ON_RESUME, Effect.NONE)
    return {kebab(name): value for name, value in config.model_dump().items() if name not in free}


class _Pickler(pickle.Pickler):
    """Leaves out the views that Flower keeps beside an array's bytes once it was sent."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, Array):
            return Array, (obj.dtype, tuple(obj.shape), obj.stype, bytes(obj.data))
        return NotImplemented
