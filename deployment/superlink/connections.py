"""Bounds on connections, which outsiders may open without a key.

Uvicorn waits without end for a connection's first request, and for the rest of a head that has
begun, and a minute for its TLS handshake. Each connection is an open file; a process that has no
more of them answers nobody.
"""

import asyncio
import logging
import os
import resource
from collections import Counter
from collections.abc import Callable
from typing import Any, ClassVar

from uvicorn.loops.auto import auto_loop_factory
from uvicorn.protocols.http.auto import AutoHTTPProtocol

# How long a handshake may take, and how long the head of a request.
IDLE_SECONDS = 10.0
# Connections of one address; a device has two or three. Devices behind one router share theirs.
PER_ADDRESS = 1000

_log = logging.getLogger("flwr")
_warned: list[int] = []  # the limit of files that was warned of


class BoundedHTTPProtocol(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
    """Closes a connection on which no request is completed, and an address's beyond its bound."""

    connected: ClassVar[Counter[str]] = Counter()  # open connections by address
    refused: ClassVar[Counter[str]] = Counter()  # those closed because there were too many

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Count the connection, and give it a deadline."""
        super().connection_made(transport)
        self._address = self.client[0] if self.client else ""
        self.connected[self._address] += 1
        self._deadline = self.loop.call_later(IDLE_SECONDS, transport.abort)
        if self.connected[self._address] > PER_ADDRESS:
            if self._address not in self.refused:
                text = "%s has %d connections open; new ones are refused until it closes some"
                _log.warning(text, self._address, PER_ADDRESS)
            self.refused[self._address] += 1
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._deadline.cancel()
        self.connected[self._address] -= 1
        if not self.connected[self._address]:
            del self.connected[self._address]
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Let the deadline be that of the head of a request, of which this may be a part."""
        before = self.cycle
        super().data_received(data)
        if self.cycle is not before:
            self._deadline.cancel()
        elif self._deadline.cancelled() and (before is None or before.response_complete):
            self._deadline = self.loop.call_later(IDLE_SECONDS, self.transport.abort)


def loop_factory(use_subprocess: bool = False) -> Callable[[], asyncio.AbstractEventLoop]:
    """Return what makes uvicorn's event loop, whose servers bound the time of a handshake."""
    make = auto_loop_factory(use_subprocess)

    def new_loop() -> asyncio.AbstractEventLoop:
        loop: Any = make()
        create = loop.create_server

        def create_server(protocol: Any, *args: Any, ssl: Any = None, **options: Any) -> Any:
            def accept() -> asyncio.Protocol:
                _warn_if_few_files()
                return protocol()  # type: ignore[no-any-return]

            if ssl is not None:
                options["ssl_handshake_timeout"] = IDLE_SECONDS
            return create(accept, *args, ssl=ssl, **options)

        loop.create_server = create_server
        return loop  # type: ignore[no-any-return]

    return new_loop


def raise_file_limit() -> None:
    """Let this process open as many files as it may."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _warn_if_few_files() -> None:
    """Log once that nearly all files are open: uvloop drops the connections beyond silently."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    try:
        lowest = os.open(os.devnull, os.O_RDONLY)  # of the files that are not open
        os.close(lowest)
    except OSError:
        lowest = limit
    if lowest >= 0.9 * limit and not _warned:
        _warned.append(limit)
        text = "%d of %d file descriptors are open; connections beyond are dropped (ulimit -Hn)"
        _log.error(text, lowest, limit)
