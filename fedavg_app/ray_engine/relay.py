"""Connections to workers on other machines, by way of Ray.

A worker listens within its machine only. On another machine than the driver's it starts a relay,
a Ray actor beside it. The relay connects to the worker, and the driver to the relay by Ray calls,
so that what goes over the network is encrypted and authenticated as Ray is told to.
"""

import os
import socket
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing.connection import Connection
from threading import Thread
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from fedavg_app.ray_engine.local_connection import Address, connect

# Ray sends values of less than 100 KiB along with a call or its result. Larger ones go through its
# object stores, which takes longer.
PART_BYTES = 96 * 1024


class Relay:
    """Passes on bytes between the driver and one worker on this machine."""

    def connect(self, address: Address, key: bytes) -> None:
        """Connect to the worker; see `local_connection.connect` for the errors."""
        self._connection = connect(address, key)

    def send(self, *parts: bytes) -> None:
        """Send the worker a message, given in parts.

        Raises:
            OSError: The worker has closed the connection.
        """
        self._connection.send_bytes(b"".join(parts))

    def receive(self) -> Iterator[bytes]:
        """Yield the stream of bytes that the worker sends, until it closes the connection."""
        with socket.socket(fileno=os.dup(self._connection.fileno())) as end:
            while part := end.recv(PART_BYTES):
                yield part


def start_relay() -> Any:
    """Start a relay on the Ray node of this process; return the actor once it runs.

    It ends with this process.

    Raises:
        ray.exceptions.RayError: It cannot start.
    """
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    # `receive` takes one of two threads for as long as it runs.
    actor: Any = ray.remote(Relay).options(num_cpus=0, max_concurrency=2, scheduling_strategy=here)
    relay = actor.remote()
    ray.get(relay.__ray_ready__.remote())
    return relay


class RelayedConnection(Connection):
    """A connection through a relay, which is its own alone.

    It is one end of a pair of sockets. Two threads pass on, by Ray calls, what is sent to it and
    what the worker sends. It reaches its end when the worker, the relay or their machine dies;
    closing it ends the relay and the threads.

    Args:
        relay: What `start_relay` returned.
        address: Where the worker listens, on the relay's machine.
        key: The secret with which its connections begin.

    Raises:
        ray.exceptions.RayError: The relay has died or cannot connect.
    """

    def __init__(self, relay: Any, address: Address, key: bytes) -> None:
        ray.get(relay.connect.remote(address, key))
        driver_end, self._relay_end = socket.socketpair()
        super().__init__(driver_end.detach())
        self._relay = relay
        self._threads = [
            Thread(target=self._pass_on, args=[way], daemon=True)
            for way in (self._send_messages, self._receive_bytes)
        ]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Close the connection; end the relay and the threads."""
        super().close()
        ray.kill(self._relay)
        for thread in self._threads:
            thread.join()
        self._relay_end.close()

    def _pass_on(self, way: Any) -> None:
        """Run one of the two ways to its end, then end the other."""
        with suppress(ray.exceptions.RayError, OSError, EOFError):
            way()
        with suppress(OSError):  # the driver has closed its end
            self._relay_end.shutdown(socket.SHUT_RDWR)

    def _send_messages(self) -> None:
        with Connection(os.dup(self._relay_end.fileno())) as messages:
            while True:
                data = messages.recv_bytes()
                parts = [data[at : at + PART_BYTES] for at in range(0, len(data), PART_BYTES)]
                # Ray does not keep the order of calls to an actor with two threads.
                ray.get(self._relay.send.remote(*parts))

    def _receive_bytes(self) -> None:
        for part in self._relay.receive.remote():
            self._relay_end.sendall(ray.get(part))
