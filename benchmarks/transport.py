"""A request and its answer to two workers: by Ray calls, and over connections as RayGrid has them.

    python -m benchmarks.transport

Both workers are asked at once, with as many bytes as they answer with; printed are medians.
"""

import os
import statistics
import time
from collections.abc import Callable
from multiprocessing.connection import Client, Connection, Listener, wait
from typing import Any

import ray

from fedavg_app.ray_engine.ray_cluster import ray_cluster
from fedavg_app.ray_engine.serialization import set_tcp_nodelay

KEY = os.urandom(32)
REPEATS = 200


class Echo:
    """Answers with what it is sent."""

    def call(self, data: bytes) -> bytes:
        """Answer a Ray call."""
        return data

    def listen(self) -> Any:
        """Return where to connect."""
        self._listener = Listener(("127.0.0.1", 0), authkey=KEY)
        return self._listener.address

    def serve(self) -> None:
        """Answer over a connection."""
        with self._listener.accept() as connection:
            set_tcp_nodelay(connection)
            while True:
                connection.send_bytes(connection.recv_bytes())


def by_calls(actors: list[Any], data: bytes) -> None:
    """Ask both by Ray calls; take the answers as they come."""
    left = [actor.call.remote(data) for actor in actors]
    while left:
        done, left = ray.wait(left, num_returns=1)
        ray.get(done)


def by_connections(connections: list[Connection], data: bytes) -> None:
    """Ask both over their connections; take the answers as they come."""
    for connection in connections:
        connection.send_bytes(data)
    left = list(connections)
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
    with ray_cluster("", 4, "auto", "cpu"):
        kind: Any = ray.remote(Echo).options(num_cpus=1)
        callees, servers = [kind.remote() for _ in range(2)], [kind.remote() for _ in range(2)]
        connections = []
        for server in servers:
            address = ray.get(server.listen.remote())
            server.serve.remote()
            connections.append(Client(address, authkey=KEY))
            set_tcp_nodelay(connections[-1])
        for size in (100, 35_000, 200_000, 800_000):
            data = os.urandom(size)
            by_calls(callees, data)
            ray_ms = milliseconds(lambda data=data: by_calls(callees, data))
            ours = milliseconds(lambda data=data: by_connections(connections, data))
            print(f"{size:>7} bytes: Ray {ray_ms:6.2f} ms, connections {ours:6.2f} ms")


if __name__ == "__main__":
    main()
