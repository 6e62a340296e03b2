"""A checkpoint's manifest: the one file that says what the checkpoint is.

It has digests of all that the next round depends on: the files, the history, the config's keys that
change the result, and the manifest itself. They find damage and edits; they are no signature.
"""

import hashlib
import json
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from fedavg_app.callbacks.run_directory import CONFIG_FILE
from fedavg_app.config import Effect, RunConfig, fields_with, kebab

# In a run's folder.
FOLDER = "checkpoint"
MANIFEST = "manifest.json"
# Of the checkpoints' format.
VERSION = 4


def has_checkpoint(run_folder: Path) -> bool:
    """Return whether the run in a folder can be resumed."""
    return (run_folder / FOLDER / MANIFEST).is_file()


def result_keys(config: RunConfig) -> dict[str, Any]:
    """Return the values of the keys that a resumed run must have as they were."""
    free = fields_with(RunConfig, Effect.FREE_ON_RESUME, Effect.NONE)
    return {kebab(name): value for name, value in config.model_dump().items() if name not in free}


def check_unchanged(expected: Mapping[str, Any], saved: RunConfig) -> None:
    """Check that the saved config is the one that a checkpoint was made with.

    Raises:
        ValueError: It is not.
    """
    found = result_keys(saved)
    for key in sorted(found.keys() | expected.keys()):
        if found.get(key) != expected.get(key):
            raise ValueError(
                f"{CONFIG_FILE} has changed: {key} = {found.get(key)!r} was {expected.get(key)!r}"
            )


def sealed(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return a manifest with a digest of its other entries."""
    content = {key: value for key, value in manifest.items() if key != "digest"}
    text = json.dumps(content, sort_keys=True)
    return {**content, "digest": hashlib.sha256(text.encode()).hexdigest()}


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return the manifest of a checkpoint.

    Raises:
        OSError: It cannot be read.
        ValueError: It is damaged, or of another version.
    """
    manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    if not isinstance(manifest, dict):
        raise ValueError(f"{MANIFEST} holds no table")
    if manifest.get("version") != VERSION:
        raise ValueError("it is of another version of this project")
    if sealed(manifest) != manifest:
        raise ValueError(f"{MANIFEST} has changed")
    for entry in ("round", "data", "config", "files", "history"):
        if entry not in manifest:
            raise ValueError(f"{MANIFEST} has no entry {entry!r}")
    return manifest


def history_digest(path: Path, last_round: int) -> str:
    """Return the digest of the history's lines up to a round."""
    digest = hashlib.sha256()
    with path.open(encoding="utf-8") as file:
        for line in islice(file, last_round + 1):
            digest.update(line.strip().encode() + b"\n")
    return digest.hexdigest()
