"""Errors that a user can act on: one line each, shown without a traceback."""

import traceback
from collections.abc import Iterable
from difflib import get_close_matches

from tasks.data.dataset import DataError


class ConfigError(ValueError):
    """A run-config value that cannot be used.

    Args:
        key: The key as the user wrote it, kebab-case.
        value: The value found.
        fix: What to write instead.
    """

    def __init__(self, key: str, value: object, fix: str) -> None:
        super().__init__(f"{key} = {value!r}: {fix}")


# Keys of earlier versions, with what to write instead.
REMOVED_KEYS = {
    "link-work": "removed; give all clients the same local-steps or local-epochs",
    "partition-by": "removed; give by in partition-args, as in: by = 'bins:10'",
    "target-accuracy": "removed; give target, and none for never",
    "untrained-clients": "removed; tests by clients that have not trained are left out",
}


def unknown_key(key: str, known: Iterable[str]) -> str:
    """Return the fix for a key of the config that does not exist: what to write instead of it."""
    if key in REMOVED_KEYS:
        return REMOVED_KEYS[key]
    near = ", ".join(get_close_matches(key, list(known)))
    return f"unknown key; {f'did you mean {near}?' if near else 'fedavg run --help lists all'}"


class RunError(RuntimeError):
    """The run cannot continue; the message says why and what to do.

    Attributes:
        status: The status in the run's ``summary.json``.
    """

    status = "failed"


class NoRepliesError(RunError):
    """The last rounds had too few valid replies (docs/run-folder.md, "status")."""

    status = "no-replies"


class DivergedError(RunError):
    """Training diverged: no model or loss was finite."""

    status = "diverged"


USER_ERRORS = (ConfigError, DataError, RunError)


def error_place(error: BaseException) -> str:
    """Return an error in one line, with the file and the line that raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    file, line = (frames[-1].filename, frames[-1].lineno) if frames else ("?", 0)
    text = " ".join(str(error).split())
    if isinstance(error, SyntaxError):  # which no frame of the broken file raised
        file, line, text = str(error.filename), error.lineno, error.msg
    return f"{type(error).__name__}: {text} ({file}, line {line})"
