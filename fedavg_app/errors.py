"""Errors that a person can act on: one line each, shown without a traceback."""

from tasks.data.store import DataError


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


class RunError(RuntimeError):
    """The run cannot go on; the message says why and what to do."""


USER_ERRORS = (ConfigError, DataError, RunError)
