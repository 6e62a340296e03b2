"""Checkpoints: all that a run's next round depends on.

That is the strategy, the model and, where the grid has them, the clients' states. There is no
random state to keep: every draw follows from the seed, the round and the client. The history is
beside it, and cut back to the checkpoint's round.

The file "state" is the checkpoint: it names the files of the clients' states, of which only those
are written that changed. It is replaced atomically, with those files on the disk before it, and
what an older one named is deleted after that: a run that is killed at any moment, or a machine that
loses its power, leaves either this checkpoint or the one before. A digest in each file finds
damage.
"""

import hashlib
import json
import pickle
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any

from flwr.app import Array, ArrayRecord

from fedavg_app.config import Effect, RunConfig, fields_with, kebab, parse_config
from fedavg_app.errors import ConfigError, RunError
from fedavg_app.results.metrics import RoundMetrics, read_history
from fedavg_app.results.run_folder import CONFIG_FILE, HISTORY_FILE
from strategies.base import FederatedStrategy
from tasks.data.atomic_file import flush, replacing

# The checkpoint's folder in the run's, and its file.
FOLDER, STATE = "checkpoint", "state"


@dataclass(frozen=True)
class RunState:
    """The state of a run after a round.

    Attributes:
        strategy: The strategy, with what it keeps from round to round.
        model: The global model.
        history: The metrics of the rounds up to that one.
        data: The fingerprint of the data set.
        client_states: The clients' states, pickled, by partition.
        client_files: The files of these.
    """

    strategy: FederatedStrategy[Any]
    model: ArrayRecord
    history: list[RoundMetrics]
    data: str
    client_states: Mapping[int, bytes] = field(default_factory=dict)
    client_files: Mapping[int, str] = field(default_factory=dict)


def has_checkpoint(run_folder: Path) -> bool:
    """Return whether the run in a folder can be resumed."""
    return (run_folder / FOLDER / STATE).is_file()


def save_checkpoint(
    run_folder: Path,
    config: RunConfig,
    state: RunState,
    changed: Mapping[int, bytes | None],
) -> dict[int, str]:
    """Replace the run's checkpoint; return the files of the clients' states.

    Args:
        run_folder: The run's folder, with its history.
        config: The run's settings.
        state: The state, with the files of the checkpoint before.
        changed: The clients' states that have changed since then; None for one that is gone.

    Raises:
        RunError: It cannot be written, or the strategy cannot be pickled.
    """
    folder, server_round = run_folder / FOLDER, state.history[-1].round
    files = {client: name for client, name in state.client_files.items() if client not in changed}
    try:
        folder.mkdir(exist_ok=True)
        for client, content in changed.items():
            if content is not None:
                files[client] = f"{client}.{server_round}.client"
                _write(folder / files[client], content)
        server = (
            server_round,
            state.data,
            _result_keys(config),
            files,
            state.strategy,
            state.model,
        )
        flush(run_folder / HISTORY_FILE)
        flush(folder)
        _write(folder / STATE, _pickled(server))
        flush(folder)
        _delete_all_but(folder, files)
    except (OSError, pickle.PicklingError, TypeError, AttributeError) as error:
        with suppress(OSError):  # what was written of it takes space that the run may lack
            _delete_all_but(folder, state.client_files)
        raise RunError(f"cannot write the checkpoint {folder}: {error}") from error
    return files


def load_checkpoint(config: RunConfig) -> RunState:
    """Return the state of the run that the config's "resume" names.

    A checkpoint is unpickled: load only those of runs of your own.

    Raises:
        ConfigError: There is no such run, it has no checkpoint or a damaged one, or its config
            differs in a key that changes the result.
    """
    saved_config(config.resume)  # a run at all
    run_folder = Path(config.resume).expanduser()
    folder = run_folder / FOLDER
    if not has_checkpoint(run_folder):
        fix = "it has no checkpoint; start it again, with checkpoint-every"
        raise ConfigError("resume", config.resume, fix)
    try:
        server = pickle.loads(_read(folder / STATE))  # noqa: S301 - the run's own, see above
        server_round, data, keys, files, strategy, model = server
        client_states = {client: _read(folder / name) for client, name in files.items()}
        history = read_history(run_folder / HISTORY_FILE, server_round)
    except Exception as error:  # whatever unpickling another version's raises
        fix = f"its checkpoint cannot be read ({error}); start the run again"
        raise ConfigError("resume", config.resume, fix) from error
    for key, value in _result_keys(config).items():
        if value != keys.get(key):
            raise ConfigError(key, value, f"the run to resume has {keys.get(key)!r}; give that")
    return RunState(strategy, model, history, data, client_states, files)


def saved_config(run_folder: str) -> RunConfig:
    """Return the config of the run in a folder.

    Raises:
        ConfigError: There is none that this version can read.
    """
    path = Path(run_folder).expanduser() / CONFIG_FILE
    try:
        return parse_config(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        fix = f"give the folder of a federated run; {CONFIG_FILE} cannot be read from it"
        raise ConfigError("resume", run_folder, fix) from error


def _result_keys(config: RunConfig) -> dict[str, Any]:
    """Return the values of the keys that a resumed run must have as they were."""
    free = fields_with(RunConfig, Effect.FREE_ON_RESUME, Effect.NONE)
    return {kebab(name): value for name, value in config.model_dump().items() if name not in free}


def _write(path: Path, content: bytes) -> None:
    with replacing(path) as temporary, temporary.open("wb") as file:
        file.write(hashlib.sha256(content).digest())
        file.write(content)


def _read(path: Path) -> bytes:
    content = path.read_bytes()
    digest, content = content[:32], content[32:]
    if hashlib.sha256(content).digest() != digest:
        raise ValueError(f"{path.name} is damaged")
    return content


def _delete_all_but(folder: Path, files: Mapping[int, str]) -> None:
    for path in folder.iterdir():
        if path.name != STATE and path.name not in files.values():
            path.unlink()


class _Pickler(pickle.Pickler):
    """Leaves out the views that Flower keeps beside an array's bytes once it was sent."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, Array):
            return Array, (obj.dtype, tuple(obj.shape), obj.stype, bytes(obj.data))
        return NotImplemented


def _pickled(content: object) -> bytes:
    file = BytesIO()
    _Pickler(file, pickle.HIGHEST_PROTOCOL).dump(content)
    return file.getvalue()
