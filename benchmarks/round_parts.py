"""Where the time of a short round goes, in the driver and in its workers.

    python -m benchmarks.round_parts --data-dir /path/to/mnist [--strategy stc] [--rounds 200]
        [--functions 10] [--set key=value ...]

One run on RayGrid, by default logistic regression, one step of B = 20, 10 of 100 clients, tested
every round. A thread in the driver and in each worker looks every half millisecond at what the main
thread is doing, from round 20 on. The innermost function that belongs to one of the parts below
counts. Printed are milliseconds a round: the driver's, and the workers' as a mean over them.
Looking costs up to a tenth of the time; the round without it is in benchmarks/engine.py.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from types import FrameType

from flwr.app import ArrayRecord, Context, Message
from flwr.clientapp.typing import ClientAppCallable
from rich.console import Console
from rich.table import Table

from fedavg_app.callbacks.base import Callback
from fedavg_app.config import parse_config
from fedavg_app.ray_engine.simulation import simulate
from fedavg_app.server.metrics import RoundMetrics, TrainingResult

# The environment variable that names the folder in which workers write what they counted.
FOLDER = "FEDAVG_APP_BENCHMARK_PARTS"
FIRST_ROUND = 20
PERIOD_SECONDS = 0.0005
# What a function belongs to, by a part of its file's path, with ":name" for one function only.
PARTS = {
    "waiting": ("selectors.py", "worker.py:serve", "threading.py:wait"),
    "pickling": ("worker_handle.py:send", "worker_handle.py:receive", "worker.py:answer"),
    "transport": ("multiprocessing/connection.py",),
    "dispatch": ("fedavg_app/ray_engine/",),
    "nodes and sampling": ("server/cohort.py", "server/node_registry.py"),
    "messages": ("server/messaging.py", "server/message_size.py", "server/polling.py",
                 "strategies/base.py", "client/mods.py"),
    "Flower's records": ("/flwr/", "flower_arrays.py", "flower_internals.py", "client_app.py"),
    "codec": ("strategies/compress", "strategies/packed_records.py"),
    "validation": ("strategies/reply_validation.py",),
    "averaging": ("strategies/aggregation.py", "strategies/fedavg.py", "strategies/fedsgd.py",
                  "strategies/client_metrics.py"),
    "batch selection": ("tasks/examples.py", "tasks/random_streams.py", "client/task_client.py"),
    "evaluation": ("tasks/evaluation.py", "server/evaluation.py"),
    "torch": ("tasks/",),
    "callbacks": ("fedavg_app/callbacks/", "server/metrics.py", "server/checkpoint"),
}  # fmt: skip
# Seconds a round, by "parts" and by "functions".
Report = dict[str, dict[str, float]]


class Sampler:
    """Counts what a thread is doing, from `start` on.

    Args:
        thread: The thread's identifier.
    """

    def __init__(self, thread: int) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()
        self.started = 0.0
        self._thread = thread

    def start(self) -> None:
        """Begin, unless it has begun."""
        if not self.started:
            self.started = time.monotonic()
            sys.setswitchinterval(PERIOD_SECONDS / 5)  # or the thread that looks waits 5 ms
            threading.Thread(target=self._sample, daemon=True).start()

    def report(self, rounds: int) -> Report:
        """Return seconds a round by part and by function."""
        total, seconds = sum(self.counts.values()), time.monotonic() - self.started
        parts: Counter[str] = Counter()
        functions: Counter[str] = Counter()
        for (part, function), count in list(self.counts.items()):
            parts[part] += count
            functions[f"{part}: {function}"] += count
        return {
            name: {key: count * seconds / total / rounds for key, count in counter.items()}
            for name, counter in (("parts", parts), ("functions", functions))
        }

    def _sample(self) -> None:
        while True:
            time.sleep(PERIOD_SECONDS)
            frame = sys._current_frames().get(self._thread)
            if frame is not None:
                self.counts[classify(frame)] += 1


def classify(frame: FrameType | None) -> tuple[str, str]:
    """Return the part of a round that a stack belongs to, and the function that says so."""
    while frame is not None:
        code = frame.f_code
        for part, fragments in PARTS.items():
            for fragment in fragments:
                path, _, name = fragment.partition(":")
                if path in code.co_filename and name in ("", code.co_name):
                    return part, f"{Path(code.co_filename).name} {code.co_qualname}"
        frame = frame.f_back
    return "other", ""


_worker = Sampler(threading.main_thread().ident or 0)


def sample_worker(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """Sample the worker that this mod runs in; write what was counted every ten rounds."""
    server_round = int(message.content.config_records["config"]["server-round"])  # type: ignore[arg-type]
    if server_round >= FIRST_ROUND:
        _worker.start()
        if server_round % 10 == 0 and server_round > FIRST_ROUND:
            file = Path(os.environ[FOLDER]) / str(os.getpid())
            file.write_text(json.dumps(_worker.report(server_round - FIRST_ROUND)))
    return call_next(message, context)


class DriverSampler(Callback):
    """Samples the driver.

    Attributes:
        report: What it found, once the training is over.
    """

    def __init__(self) -> None:
        self.report: Report = {}
        self._sampler = Sampler(threading.main_thread().ident or 0)
        self._rounds = -1

    def on_round_end(self, metrics: RoundMetrics, model: ArrayRecord) -> None:
        """Begin; count the rounds."""
        del model
        if metrics.round >= FIRST_ROUND:
            self._sampler.start()
            self._rounds += 1

    def on_train_end(self, result: TrainingResult) -> None:
        """Keep what was found."""
        del result
        self.report = self._sampler.report(self._rounds)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--strategy", default="fedavg")
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--functions", type=int, default=0, help="print that many functions, too")
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="of the config")
    chosen = parser.parse_args()
    changes = dict(pair.split("=", 1) for pair in chosen.set)
    with tempfile.TemporaryDirectory() as folder:
        os.environ[FOLDER] = folder
        config = parse_config(
            {
                "task": "mnist-logistic", "local-steps": 1, "batch-size": 20, "target-accuracy": 0,
                "learning-rate": 0.04, "strategy": chosen.strategy, "seed": 1,
                "num-server-rounds": chosen.rounds, "num-clients": 100, "fraction-train": 0.1,
                "data-dir": str(Path(chosen.data_dir).resolve()), "run-dir": folder,
                "client-mods": "benchmarks.round_parts:sample_worker", **changes,
            }
        )  # fmt: skip
        driver = DriverSampler()
        result = simulate(config, callbacks=[lambda _: driver])
        workers: list[Report] = [
            json.loads(file.read_text()) for file in Path(folder).iterdir() if file.name.isdigit()
        ]
    seconds = [metrics.seconds for metrics in result.history if metrics.round > FIRST_ROUND]
    table = Table(title=f"ms a round; a median round took {statistics.median(seconds) * 1e3:.2f}")
    for column in ("", "driver", "workers, mean"):
        table.add_column(column)
    for kind, most in (("parts", len(PARTS) + 1), ("functions", chosen.functions)):
        mean = {
            name: statistics.mean(worker[kind].get(name, 0.0) for worker in workers)
            for name in {name for worker in workers for name in worker[kind]}
        }
        both = {name: (driver.report[kind].get(name, 0.0), mean.get(name, 0.0))
                for name in {*driver.report[kind], *mean}}  # fmt: skip
        largest = sorted(both, key=lambda name: -sum(both[name]))[:most]
        for name in largest:
            table.add_row(name, *(f"{value * 1e3:.2f}" for value in both[name]))
        table.add_section()
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
