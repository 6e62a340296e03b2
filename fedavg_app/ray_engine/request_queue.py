"""The worker's end of its connection: requests are read on a thread of their own."""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from fedavg_app.ray_engine.local_connection import set_tcp_nodelay
from fedavg_app.ray_engine.serialization import SharedRecord, dumps, loads


@dataclass(frozen=True)
class WorkerError:
    """Why a worker could not answer a request.

    Attributes:
        reason: The error in one line.
        traceback: Its traceback, for logs.
    """

    reason: str
    traceback: str


# What was requested, or a `WorkerError`.
Answer = Any
# When a request came, on the monotonic clock; its name and arguments.
Request = tuple[float, tuple[Any, ...]]


class RequestQueue:
    """Requests that have come and are not begun.

    They are read as they come, whatever the worker is doing: the driver never waits to send one,
    and can take one back that another worker has time for.

    Attributes:
        closed: No more requests can come.
        ended: The driver has said so; else its end of the connection was closed.
    """

    def __init__(self, connection: Connection) -> None:
        set_tcp_nodelay(connection)
        self.closed = self.ended = False
        self._connection = connection
        self._requests: deque[Request] = deque()
        self._changed, self._sending = threading.Condition(), threading.Lock()
        threading.Thread(target=self._read, daemon=True).start()

    def take(self) -> Iterator[Request]:
        """Wait for requests; yield them until none is left."""
        with self._changed:
            while not self._requests and not self.closed:
                self._changed.wait()
        while True:
            try:
                request = self._requests.popleft()
            except IndexError:
                return
            yield request

    def take_if(self, accepted: Callable[[Request], bool]) -> Request | None:
        """Remove and return the next request if there is one and it is accepted."""
        try:
            request = self._requests.popleft()
        except IndexError:
            return None
        if accepted(request):
            return request
        self._requests.appendleft(request)
        return None

    def send_answers(self, answers: Sequence[Answer]) -> None:
        """Send answers, in the order of the requests.

        Raises:
            OSError: The driver has closed the connection.
        """
        if answers:
            self._send("answers", answers)

    def _send(self, name: str, content: Any) -> None:
        with self._sending:
            self._connection.send_bytes(dumps((name, content)))

    def _read(self) -> None:
        shared: Sequence[SharedRecord] = ()
        try:
            while True:
                name, content = loads(self._connection.recv_bytes(), shared)
                if name == "share":
                    shared = content
                elif name == "return last":
                    self._return_last()
                elif name == "end":
                    self.ended = True
                    return
                else:
                    now = time.monotonic()
                    with self._changed:
                        self._requests.extend((now, request) for request in content)
                        self._changed.notify()
        except (EOFError, OSError):
            pass
        finally:  # whatever ended it, no more can come
            self._requests.clear()
            with self._changed:
                self.closed = True
                self._changed.notify()

    def _return_last(self) -> None:
        """Send back the id of the message that came last, which will not be handled here."""
        message_id = None
        with suppress(IndexError):
            received, request = self._requests.pop()
            if request[0] == "handle":
                message_id = request[1].metadata.message_id
            else:
                self._requests.append((received, request))
        self._send("returned", message_id)
