"""Objects on a connection, pickled without a copy of the bytes in them."""

import os
import pickle
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any


class Stream:
    """Sends and receives objects on a connection of this machine, one after the other.

    Where `multiprocessing` makes all of a message before it is sent, and joins it again after it
    has come, here the arrays of a model go from their own memory, and arrive in it.

    Args:
        connection: The connection, which is closed; the stream keeps its socket.
    """

    def __init__(self, connection: "Connection[Any, Any]") -> None:
        with connection:
            self._reader = os.fdopen(os.dup(connection.fileno()), "rb")
            self._writer = os.fdopen(os.dup(connection.fileno()), "wb")

    def send(self, value: object) -> None:
        """Send an object; OSError if nobody is there to receive it."""
        pickle.dump(value, self._writer, pickle.HIGHEST_PROTOCOL)
        self._writer.flush()

    def receive(self) -> Any:
        """Return the next object; EOFError or OSError if the other end was closed."""
        try:
            return pickle.load(self._reader)  # noqa: S301 - our own processes'
        except pickle.UnpicklingError as error:
            raise EOFError("it was closed within an object") from error

    def fileno(self) -> int:
        """Return the file that `multiprocessing.connection.wait` waits for."""
        return self._reader.fileno()

    def close(self) -> None:
        """Close this end."""
        for file in (self._reader, self._writer):
            with suppress(OSError):  # of what was not sent to an end that is closed
                file.close()
