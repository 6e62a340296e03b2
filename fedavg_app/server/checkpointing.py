"""Checkpoints: all that a run's next round depends on, replaced atomically.

That is the strategy, the model and, where the grid has them, the clients' states. There is no
random state to keep: every draw follows from the seed, the round and the client. The history is
beside it, and cut back to the checkpoint's round.

A file is on the disk before the manifest names it, the manifest is replaced atomically, and what an
older manifest named is deleted after that. So a run that is killed at any moment, or a machine that
loses its power, leaves either this checkpoint or the one before.
"""

import hashlib
import json
import pickle
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from flwr.app import Array, ArrayRecord
from flwr.serverapp import Grid

from fedavg_app.callbacks.base import Callback
from fedavg_app.callbacks.run_directory import CONFIG_FILE, HISTORY_FILE
from fedavg_app.config import RunConfig, parse_config
from fedavg_app.errors import ConfigError, RunError
from fedavg_app.server.checkpoint_manifest import (
    FOLDER,
    MANIFEST,
    VERSION,
    check_unchanged,
    has_checkpoint,
    history_digest,
    read_manifest,
    result_keys,
    sealed,
)
from fedavg_app.server.metrics import RoundMetrics, read_history
from strategies.base import FederatedStrategy
from tasks.data.atomic_file import flush, replacing


@runtime_checkable
class ClientStateGrid(Protocol):
    """A grid that can save and restore its clients' states."""

    def changed_states(self) -> dict[int, bytes | None]:
        """Return, by partition, the states changed since the last call, pickled; None for none."""

    def restore_states(self, states: Mapping[int, bytes]) -> None:
        """Give clients the states that `changed_states` returned."""


@dataclass(frozen=True)
class RunState:
    """The state of a run after a round.

    Attributes:
        strategy: The strategy, with what it keeps from round to round.
        model: The global model.
        history: The metrics of the rounds up to that one.
        client_states: The clients' states, pickled, by partition.
        data: The fingerprint of the data set.
    """

    strategy: FederatedStrategy[Any]
    model: ArrayRecord
    history: list[RoundMetrics]
    client_states: dict[int, bytes]
    data: str


class Checkpointer(Callback):
    """A callback that saves the run's state every few rounds.

    Of the clients' states only those are written that changed since the last checkpoint.

    Args:
        run_folder: The run's folder, with its history.
        config: The run's settings, with the rounds between two checkpoints.
        data: The fingerprint of the data set.
        strategy: The strategy.
        grid: Its clients' states are saved if it is a `ClientStateGrid`.
    """

    def __init__(
        self,
        run_folder: Path,
        config: RunConfig,
        data: str,
        strategy: FederatedStrategy[Any],
        grid: Grid | None = None,
    ) -> None:
        self._folder, self._history = run_folder / FOLDER, run_folder / HISTORY_FILE
        self._config, self._data, self._strategy, self._grid = config, data, strategy, grid
        self._files: dict[str, str] = {}  # digests by name
        if (self._folder / MANIFEST).is_file():
            self._files = read_manifest(self._folder)["files"]

    def on_round_end(self, metrics: RoundMetrics, model: ArrayRecord) -> None:
        """Save a checkpoint if one is due.

        Raises:
            RunError: It cannot be written, or the strategy cannot be pickled.
        """
        if metrics.round % self._config.checkpoint_every == 0:
            grid = self._grid
            changed: Mapping[int, bytes | None] = {}
            if isinstance(grid, ClientStateGrid):
                changed = grid.changed_states()
            self.save(metrics.round, model, changed)

    def save(
        self, server_round: int, model: ArrayRecord, changed: Mapping[int, bytes | None]
    ) -> None:
        """Replace the checkpoint by one of this round.

        Raises:
            RunError: It cannot be written, or the strategy cannot be pickled.
        """
        files = {
            name: digest
            for name, digest in self._files.items()
            if _client(name) is not None and _client(name) not in changed
        }
        try:
            self._folder.mkdir(exist_ok=True)
            server = _pickled((self._strategy, model))
            files |= [
                self._write(f"{client}.{server_round}.client", state)
                for client, state in changed.items()
                if state is not None
            ]
            files |= [self._write(f"{server_round}.server", server)]
            content = {
                "version": VERSION, "round": server_round, "data": self._data,
                "config": result_keys(self._config), "files": files,
                "history": history_digest(self._history, server_round),
            }  # fmt: skip
            flush(self._history)
            flush(self._folder)
            with replacing(self._folder / MANIFEST) as temporary:
                temporary.write_text(json.dumps(sealed(content)), encoding="utf-8")
            self._files = files
            flush(self._folder)
            self._delete_all_but(files)
        except (OSError, pickle.PicklingError, TypeError, AttributeError) as error:
            with suppress(OSError):  # what was written of it takes space that the run may lack
                self._delete_all_but(self._files)
            raise RunError(f"cannot write the checkpoint {self._folder}: {error}") from error

    def _delete_all_but(self, files: Mapping[str, str]) -> None:
        for path in self._folder.iterdir():
            if path.name not in files and path.name != MANIFEST:
                path.unlink()

    def _write(self, name: str, content: bytes) -> tuple[str, str]:
        with replacing(self._folder / name) as temporary:
            temporary.write_bytes(content)
        return name, hashlib.sha256(content).hexdigest()


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


def load_checkpoint(config: RunConfig) -> RunState:
    """Return the state of the run that the config's "resume" names.

    A checkpoint is unpickled: load only those of runs of your own.

    Raises:
        ConfigError: There is no such run, it has no checkpoint or a damaged one, or its config
            differs in a key that changes the result.
    """
    run_folder = Path(config.resume).expanduser()
    _check_same_run(config, run_folder)
    folder = run_folder / FOLDER
    if not has_checkpoint(run_folder):
        fix = "it has no checkpoint; start it again, with checkpoint-every"
        raise ConfigError("resume", config.resume, fix)
    try:
        manifest = read_manifest(folder)
        check_unchanged(manifest["config"], saved_config(str(run_folder)))
        client_states: dict[int, bytes] = {}
        server = b""
        for name, digest in manifest["files"].items():
            content = (folder / name).read_bytes()
            if hashlib.sha256(content).hexdigest() != digest:
                raise ValueError(f"{name} has changed")
            client = _client(name)
            if client is None:
                server = content
            else:
                client_states[client] = content
        strategy, model = pickle.loads(server)  # noqa: S301 - the run's own, see above
        history = read_history(run_folder / HISTORY_FILE, manifest["round"])
        if history_digest(run_folder / HISTORY_FILE, manifest["round"]) != manifest["history"]:
            raise ValueError(f"{HISTORY_FILE} has changed")
        data = manifest["data"]
    except (
        OSError,
        EOFError,
        ValueError,
        LookupError,
        pickle.UnpicklingError,
        TypeError,
        AttributeError,
        ImportError,
    ) as e:
        fix = f"its checkpoint cannot be read ({e}); start the run again"
        raise ConfigError("resume", config.resume, fix) from e
    return RunState(strategy, model, history, client_states, data)


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


def _check_same_run(config: RunConfig, run_folder: Path) -> None:
    """Check that the config differs from the saved one in keys only that may differ."""
    given, before = result_keys(config), result_keys(saved_config(str(run_folder)))
    for key, value in given.items():
        if value != before[key]:
            raise ConfigError(key, value, f"the run to resume has {before[key]!r}; give that")


def _client(name: str) -> int | None:
    """Return the partition whose state a file holds by its name; None for the server's."""
    return int(name.partition(".")[0]) if name.endswith(".client") else None
