"""The worker's end of its connection: requests come in on a thread of their own."""

import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from flwr.app import ArrayRecord

from fedavg_app.engine.parcel import at_once, pack, unpack

# (True, what was asked for), or (False, why it cannot be had).
Answer = tuple[bool, Any]


class Inbox:
    """Requests that have come and are not begun.

    They are read at once, whatever the worker is at: the driver never waits to get rid of one, and
    can have one back that another worker has time for.
    """

    def __init__(self, connection: Connection) -> None:
        at_once(connection)
        self.closed = False
        self._connection = connection
        self._requests: deque[tuple[float, tuple[Any, ...]]] = deque()
        self._came, self._sending = threading.Condition(), threading.Lock()
        threading.Thread(target=self._read, daemon=True).start()

    def take(self) -> Iterator[tuple[float, tuple[Any, ...]]]:
        """Wait for requests; yield (when it came, its name and arguments) until none is left."""
        with self._came:
            while not self._requests and not self.closed:
                self._came.wait()
        while True:
            try:
                request = self._requests.popleft()
            except IndexError:
                return
            yield request

    def send(self, answers: Sequence[Answer]) -> None:
        """Send answers, in the order of the requests.

        Raises:
            OSError: The driver has hung up.
        """
        if answers:
            self._send("answers", answers)

    def _send(self, name: str, content: Any) -> None:
        with self._sending:
            self._connection.send_bytes(pack((name, content)))

    def _read(self) -> None:
        shared: Sequence[ArrayRecord] = ()
        try:
            while True:
                name, content = unpack(self._connection.recv_bytes(), shared)
                if name == "share":
                    shared = content
                elif name == "give back":
                    self._give_back()
                else:
                    now = time.monotonic()
                    with self._came:
                        self._requests.extend((now, request) for request in content)
                        self._came.notify()
        except (EOFError, OSError):
            pass
        finally:  # whatever ended it, no more can come
            self._requests.clear()
            with self._came:
                self.closed = True
                self._came.notify()

    def _give_back(self) -> None:
        """Send back the id of the message that came last; it will not be handled here."""
        message_id = None
        with suppress(IndexError):
            received, request = self._requests.pop()
            if request[0] == "handle":
                message_id = request[1].metadata.message_id
            else:
                self._requests.append((received, request))
        self._send("given back", message_id)
