"""Errors that a user can act on: one line each, shown without a traceback."""

from tasks.data.dataset import DataError


class ConfigError(ValueError):
    """A run-config value that cannot be used.

    Args:
        key: The key as the user wrote it, kebab-case.
        value: The value found.
        fix: What to write instead.
    """

    def __init__(self, key: str, value: object, fix: str) -> None:
        self.key = key
        super().__init__(f"{key} = {value!r}: {fix}")


class MissingLibraryError(ConfigError):
    """A value that needs a package which is not installed."""


class RunError(RuntimeError):
    """The run cannot go on; the message says why and what to do.

    Attributes:
        status: What the run's ``summary.json`` gives as its status.
    """

    status = "failed"


class NoRepliesError(RunError):
    """Several rounds in a row had no valid reply."""

    status = "no-replies"


class DivergedError(RunError):
    """Training diverged: no model or loss was finite."""

    status = "diverged"


USER_ERRORS = (ConfigError, DataError, RunError)
