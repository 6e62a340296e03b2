"""Connections within a machine: TCP on the loopback device, begun with a secret.

Not Unix sockets: their buffers are small, so that the sender of a large message waits for a busy
process to read it.
"""

import os
import socket
from multiprocessing.connection import Client, Connection, Listener
from typing import Any

# A host and a port, as `Listener.address` gives it.
Address = Any


def listen(key: bytes) -> Listener:
    """Listen on a free port for connections that begin with the secret ``key``."""
    return Listener(("127.0.0.1", 0), authkey=key)


def connect(address: Address, key: bytes) -> Connection:
    """Connect to what `listen` returned in another process of this machine.

    Raises:
        OSError: Nothing listens there.
        EOFError: The other process ended.
        multiprocessing.AuthenticationError: It has another secret.
    """
    connection = Client(address, authkey=key)
    set_tcp_nodelay(connection)
    return connection


def set_tcp_nodelay(connection: Connection) -> None:
    """Disable Nagle's algorithm on a TCP connection: small messages are sent without delay."""
    with socket.socket(fileno=os.dup(connection.fileno())) as end:
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
