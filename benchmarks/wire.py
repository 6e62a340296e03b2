"""Bytes of a real deployment at the socket, next to those that the history reports.

    python -m benchmarks.wire [--task mnist-cnn] [--nodes 3] [--rounds 20] [--quiet 90]

A SuperLink and SuperNodes with TLS and authentication on this machine. The SuperNodes reach the
SuperLink through a proxy that counts what every connection carries, as TLS sends it; `flwr run` and
the ServerApp's process do not. Counted are a quiet time without a run, then FedAvg and STC (one
local step, p = 1/400) in turn. What comes before round 1 (the app's files, a query) is told from
the rounds by the history, whose first line is written between them. Headers of TCP and IP, about
3 % of full packets, are not counted.
"""

import argparse
import asyncio
import json
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from fedavg_app.results.run_folder import HISTORY_FILE
from tests.support.deployment import Deployment

STRATEGIES: dict[str, dict[str, Any]] = {
    "fedavg": {"strategy": "fedavg"},
    "stc": {"strategy": "stc", "strategy-args": "sparsity-up = 0.0025, sparsity-down = 0.0025"},
}
BUFFER = 1 << 16


@dataclass
class Traffic:
    """What SuperNodes sent and were sent, in bytes, over how many new connections and seconds."""

    up: int = 0
    down: int = 0
    connections: int = 0
    seconds: float = 0.0

    def since(self, before: "Traffic") -> "Traffic":
        """Return what was added."""
        return Traffic(
            self.up - before.up,
            self.down - before.down,
            self.connections - before.connections,
            self.seconds - before.seconds,
        )


class Proxy:
    """Passes TCP connections on to a port of this machine and counts; a context manager.

    Attributes:
        port: Where it listens.
        target: Where it connects to.
    """

    def __init__(self) -> None:
        self.port = self.target = 0
        self._traffic = Traffic()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> "Proxy":
        """Listen on a free port."""
        self._thread.start()
        listening = asyncio.start_server(self._connected, "127.0.0.1", 0)
        server = asyncio.run_coroutine_threadsafe(listening, self._loop).result()
        self.port = server.sockets[0].getsockname()[1]
        return self

    def __exit__(self, *_: object) -> None:
        """Pass nothing on any more."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def traffic(self) -> Traffic:
        """Return what was passed on so far."""
        return replace(self._traffic, seconds=time.monotonic())

    async def _connected(self, node: asyncio.StreamReader, to_node: asyncio.StreamWriter) -> None:
        self._traffic.connections += 1
        try:
            link, to_link = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:  # the SuperLink is gone
            to_node.close()
            return
        await asyncio.gather(self._pass(node, to_link, "up"), self._pass(link, to_node, "down"))

    async def _pass(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, way: str
    ) -> None:
        try:
            while data := await source.read(BUFFER):
                setattr(self._traffic, way, getattr(self._traffic, way) + len(data))
                sink.write(data)
                await sink.drain()
        except ConnectionError:  # one side is gone: so is the other
            pass
        finally:
            sink.close()


def run(
    deployment: Deployment, proxy: Proxy, config: dict[str, Any]
) -> tuple[Traffic, Traffic, list[dict[str, Any]]]:
    """Run the app; return the traffic before round 1, that of the rounds, and the history."""
    runs = deployment.folder / f"runs-{config['strategy']}"
    start = proxy.traffic()
    with ThreadPoolExecutor(1) as pool:
        trained = pool.submit(deployment.train, runs, seconds=3600, **config)
        while not any(file.stat().st_size for file in runs.glob(f"*/{HISTORY_FILE}")):
            if trained.done():
                trained.result()
            time.sleep(0.005)
        begun = proxy.traffic()
        folder = trained.result()
    over = proxy.traffic()
    lines = (folder / HISTORY_FILE).read_text().splitlines()
    return begun.since(start), over.since(begun), [json.loads(line) for line in lines]


def row(title: str, reported: float, socket: float, messages: int) -> list[str]:
    """Return a line of the table; figures are bytes of all rounds."""
    more = socket - reported
    return [
        title,
        f"{reported:,.0f}",
        f"{socket:,.0f}",
        f"{more / messages:,.0f}",
        f"{more / reported:.2%}",
    ]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--task", default="mnist-cnn")
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--quiet", type=float, default=90, help="seconds without a run")
    chosen = parser.parse_args()
    work = {
        "task": chosen.task, "num-clients": chosen.nodes, "num-server-rounds": chosen.rounds,
        "local-steps": 1, "batch-size": 20, "evaluate-every": chosen.rounds, "target-accuracy": 0,
    }  # fmt: skip
    console = Console(width=110)
    table = Table(
        "", "reported", "at the socket", "more, a message", "more, %", title="bytes of all rounds"
    )
    with tempfile.TemporaryDirectory(prefix="benchmark-wire-") as name, Proxy() as proxy:
        deployment = Deployment(Path(name), chosen.nodes, proxy.port)
        proxy.target = deployment.port
        with deployment:
            before = proxy.traffic()
            time.sleep(chosen.quiet)
            quiet = proxy.traffic().since(before)
            console.print(
                f"quiet: a SuperNode sends {quiet.up / quiet.seconds / chosen.nodes:.0f} bytes/s "
                f"and is sent {quiet.down / quiet.seconds / chosen.nodes:.0f}; "
                f"{quiet.connections} new connections in {quiet.seconds:.0f} s"
            )
            for strategy, keys in STRATEGIES.items():
                begun, rounds, history = run(deployment, proxy, {**work, **keys})
                console.print(
                    f"{strategy}: {rounds.seconds / chosen.rounds:.1f} s a round, "
                    f"{rounds.connections} new connections; before round 1 a SuperNode sends "
                    f"{begun.up / chosen.nodes:,.0f} bytes and is sent "
                    f"{begun.down / chosen.nodes:,.0f} in {begun.seconds:.0f} s"
                )
                messages = chosen.rounds * chosen.nodes
                for way in ("up", "down"):
                    reported = sum(line[f"bytes_{way}"] for line in history)
                    socket = getattr(rounds, way)
                    table.add_row(*row(f"{strategy}, {way}", reported, socket, messages))
                    idle = getattr(quiet, way) / quiet.seconds * rounds.seconds
                    title = "  without as much as is quiet"
                    table.add_row(*row(title, reported, socket - idle, messages))
    console.print(table)


if __name__ == "__main__":
    main()
