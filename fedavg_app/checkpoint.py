"""Checkpoints: all that a run's next round depends on, on disk whole or not at all.

That is the strategy and the model, pickled together, and what every client remembers, where the
grid has it at hand. There is no random state to keep: every draw follows from the seed, the round
and the client. The history is beside it, and cut back to the checkpoint's round.

A file is complete before the manifest names it, the manifest is replaced at once, and what an older
manifest named is deleted after that. So a run that is killed at any moment leaves either this
checkpoint or the one before.
"""

import hashlib
import json
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from flwr.app import Array, ArrayRecord

from fedavg_app.artifacts import CONFIG_FILE, HISTORY_FILE
from fedavg_app.config import RunConfig, parse_config
from fedavg_app.errors import ConfigError, RunError
from fedavg_app.history import RoundRecord, read_history
from strategies.base import CohortStrategy
from strategies.foreign import Screened
from tasks.data.atomic import replacing

FOLDER, MANIFEST = "checkpoint", "manifest.json"
# Keys that may be others when a run goes on: they change nothing of what was computed.
FREE_KEYS = {
    "num-server-rounds", "target-accuracy", "run-dir", "resume", "checkpoint-every", "data-dir",
    "data-source", "device", "round-timeout", "min-nodes", "node-timeout",
}  # fmt: skip


@runtime_checkable
class Remembering(Protocol):
    """A grid that has its clients' states at hand."""

    def changed_states(self) -> dict[int, bytes | None]:
        """Return, by partition, the states changed since the last call, pickled; None for none."""

    def restore_states(self, states: Mapping[int, bytes]) -> None:
        """Give clients the states that `changed_states` returned."""


@dataclass(frozen=True)
class Standing:
    """Where a run stands after a round.

    Attributes:
        strategy: The protocol, with what it keeps from round to round.
        arrays: The global model; the strategy may hold the same object.
        records: The history up to that round.
        states: The clients' states, pickled, by partition.
        data: The fingerprint of the data set.
    """

    strategy: CohortStrategy | Screened
    arrays: ArrayRecord
    records: list[RoundRecord]
    states: dict[int, bytes]
    data: str


class Checkpoint:
    """Saves a run's standing, of the clients' states only what changed since the last time.

    Args:
        run_folder: The run's folder.
        data: The fingerprint of its data set.
    """

    def __init__(self, run_folder: Path, data: str) -> None:
        self._data = data
        self._folder = run_folder / FOLDER
        self._files: dict[str, str] = {}
        if (self._folder / MANIFEST).is_file():
            self._files = _manifest(self._folder)["files"]

    def save(
        self,
        server_round: int,
        strategy: CohortStrategy | Screened,
        arrays: ArrayRecord,
        changed: Mapping[int, bytes | None],
    ) -> None:
        """Put a checkpoint of the round in the place of the one before.

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
            # One pickle: a strategy may tell by identity whether the model is its own.
            server = _pickled((strategy, arrays))
            files |= [
                self._write(f"{client}.{server_round}.client", state)
                for client, state in changed.items()
                if state is not None
            ]
            files |= [self._write(f"{server_round}.server", server)]
            content = {"round": server_round, "data": self._data, "files": files}
            with replacing(self._folder / MANIFEST) as temporary:
                temporary.write_text(json.dumps(content), encoding="utf-8")
            for path in self._folder.iterdir():
                if path.name not in files and path.name != MANIFEST:
                    path.unlink()
        except (OSError, pickle.PicklingError, TypeError, AttributeError) as error:
            raise RunError(f"cannot write the checkpoint {self._folder}: {error}") from error
        self._files = files

    def _write(self, name: str, content: bytes) -> tuple[str, str]:
        with replacing(self._folder / name) as temporary:
            temporary.write_bytes(content)
        return name, hashlib.sha256(content).hexdigest()


class _Pickler(pickle.Pickler):
    """Leaves out what Flower keeps beside an array's bytes once it has been sent: views of them."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, Array):
            return Array, (obj.dtype, tuple(obj.shape), obj.stype, bytes(obj.data))
        return NotImplemented


def _pickled(content: object) -> bytes:
    file = BytesIO()
    _Pickler(file, pickle.HIGHEST_PROTOCOL).dump(content)
    return file.getvalue()


def load(config: RunConfig) -> Standing:
    """Return where the run stood that the config's "resume" names.

    A checkpoint is unpickled: take only those of runs of your own.

    Raises:
        ConfigError: There is no such run, it has no checkpoint or a damaged one, or its config is
            another one.
    """
    run_folder = Path(config.resume).expanduser()
    _check_same(config, run_folder)
    folder = run_folder / FOLDER
    if not has_checkpoint(run_folder):
        fix = "it has no checkpoint; start it again, with checkpoint-every"
        raise ConfigError("resume", config.resume, fix)
    try:
        manifest = _manifest(folder)
        states: dict[int, bytes] = {}
        server = b""
        for name, digest in manifest["files"].items():
            content = (folder / name).read_bytes()
            if hashlib.sha256(content).hexdigest() != digest:
                raise ValueError(f"{name} has changed")
            client = _client(name)
            if client is None:
                server = content
            else:
                states[client] = content
        strategy, arrays = pickle.loads(server)  # noqa: S301 - the run's own, see above
        records = read_history(run_folder / HISTORY_FILE, manifest["round"])
    except (
        OSError,
        ValueError,
        KeyError,
        pickle.UnpicklingError,
        TypeError,
        AttributeError,
        ImportError,
    ) as e:
        fix = f"its checkpoint cannot be read ({e}); start the run again"
        raise ConfigError("resume", config.resume, fix) from e
    return Standing(strategy, arrays, records, states, manifest["data"])


def has_checkpoint(run_folder: Path) -> bool:
    """Return whether the run in a folder can go on."""
    return (run_folder / FOLDER / MANIFEST).is_file()


def saved_config(run_folder: str) -> RunConfig:
    """Return the config of the run in a folder.

    Raises:
        ConfigError: There is none that this version understands.
    """
    path = Path(run_folder).expanduser() / CONFIG_FILE
    try:
        return parse_config(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        fix = f"give the folder of a federated run; {CONFIG_FILE} cannot be read from it"
        raise ConfigError("resume", run_folder, fix) from error


def _check_same(config: RunConfig, run_folder: Path) -> None:
    given = config.model_dump(by_alias=True)
    for key, before in saved_config(str(run_folder)).model_dump(by_alias=True).items():
        if key not in FREE_KEYS and given[key] != before:
            raise ConfigError(key, given[key], f"the run to resume has {before!r}; give that")


def _manifest(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    return found


def _client(name: str) -> int | None:
    """Return the partition whose state the file of that name holds; None: it is the server's."""
    return int(name.partition(".")[0]) if name.endswith(".client") else None
