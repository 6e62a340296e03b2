"""A request and its answer to two workers, by Ray calls and as RayGrid does it.

It has connections of its own within a machine, and relays between machines.

    python -m benchmarks.transport

Both workers are asked at once, with as many bytes as they answer with; printed are medians. All
runs on this machine, the relays, too.
"""

import os
import statistics
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from typing import Any

import ray

from fedavg_app.ray_engine.local_connection import connect, listen, set_tcp_nodelay
from fedavg_app.ray_engine.ray_cluster import ray_cluster
from fedavg_app.ray_engine.relay import RelayedConnection, start_relay

KEY = os.urandom(32)
REPEATS = 200


class Echo:
    """Answers with what it is sent."""

    def call(self, data: bytes) -> bytes:
        """Answer a Ray call."""
        return data

    def listen(self, through_relay: bool) -> tuple[Any, Any]:
        """Return where to connect, and through which relay."""
        self._listener = listen(KEY)
        self._relay = start_relay() if through_relay else None
        return self._listener.address, self._relay

    def serve(self) -> None:
        """Answer over a connection."""
        with self._listener.accept() as connection, suppress(EOFError):
            set_tcp_nodelay(connection)
            while True:
                connection.send_bytes(connection.recv_bytes())


def connections(actor: Any, through_relay: bool) -> list[Connection]:
    """Start two workers; return connections to them."""
    made: list[Connection] = []
    for server in [actor.remote() for _ in range(2)]:
        address, relay = ray.get(server.listen.remote(through_relay))
        server.serve.remote()
        made.append(RelayedConnection(relay, address, KEY) if relay else connect(address, KEY))
    return made


def by_calls(actors: list[Any], data: bytes) -> None:
    """Ask both by Ray calls; take the answers as they come."""
    left = [actor.call.remote(data) for actor in actors]
    while left:
        done, left = ray.wait(left, num_returns=1)
        ray.get(done)


def by_connections(ends: list[Connection], data: bytes) -> None:
    """Ask both over their connections; take the answers as they come."""
    for connection in ends:
        connection.send_bytes(data)
    left = list(ends)
    while left:
        for connection in wait(left):
            assert isinstance(connection, Connection)
            connection.recv_bytes()
            left.remove(connection)


def milliseconds(ask: Callable[[], None]) -> float:
    """Return the median of a number of repetitions."""
    times = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        ask()
        times.append(time.perf_counter() - started)
    return statistics.median(times) * 1e3


def main() -> None:
    """Measure and print."""
    with ray_cluster("", 6, "auto", "cpu"):
        actor: Any = ray.remote(Echo).options(num_cpus=1)
        callees = [actor.remote() for _ in range(2)]
        local, relayed = connections(actor, False), connections(actor, True)
        for size in (100, 35_000, 200_000, 800_000):
            data = os.urandom(size)
            by_calls(callees, data)
            ray_ms = milliseconds(lambda data=data: by_calls(callees, data))
            ours = milliseconds(lambda data=data: by_connections(local, data))
            relay = milliseconds(lambda data=data: by_connections(relayed, data))
            print(
                f"{size:>7} bytes: Ray {ray_ms:6.2f} ms, connections {ours:6.2f} ms, "
                f"relays {relay:6.2f} ms"
            )
        for connection in (*local, *relayed):
            connection.close()


if __name__ == "__main__":
    main()
