"""RayGrid next to what a Flower user has otherwise, and to a peer, on the same work in one run.

    python -m benchmarks.engine --data-dir /path/to/mnist [--cases logistic cnn] [--repeats 3]
        [--rounds 5] [--peer .venv-pfl/bin/python] [--out engine.json]

Each case is one run config. The quickstart (benchmarks/peers/quickstart: an app as in Flower's
PyTorch quickstart, under `flwr run`, its SuperLink already up) and RayGrid (`simulation.py`) run it
in turn, each time in new processes, and test the global model after every round. The peer (see
benchmarks/peers/) and RayGrid run it without these tests. Printed are medians over all rounds but
the first two of all repeats, the time from the command to the end of round 1, the largest sum of
the processes' memory (shared pages divided among those that share them), and how much of RayGrid's
round without tests its workers were inside clients' handlers, which is training but for the reading
and writing of arrays.

Linux only: processes are found in /proc by a variable in their environment.
"""

import argparse
import json
import os
import shlex
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.background import repeatedly
from benchmarks.timing import FOLDER
from fedavg_app.results.run_folder import HISTORY_FILE

ROOT = Path(__file__).parents[1]
BIN = Path(sys.executable).parent
# Environment variable by which the processes of a run are found.
MARK = "FEDAVG_APP_BENCHMARK"
# The first rounds, which are not counted.
SKIPPED = 2
SAMPLE_SECONDS = 0.5
COLUMNS = (
    "", "quickstart", "RayGrid", "ratio", "peer", "untested", "ratio", "efficiency",
    "round 1: quickstart", "RayGrid", "GiB: quickstart", "RayGrid", "peer",
)  # fmt: skip

Config = Mapping[str, str | int | float]


@dataclass(frozen=True)
class Case:
    """One piece of work.

    Attributes:
        title: What it is.
        rounds: How many rounds are run.
        per_round: How many of the 100 clients take part in each.
        config: Its own keys of the run config.
        peer: The peer's options for the same work; empty where it cannot do it.
    """

    title: str
    rounds: int
    per_round: int
    config: Config
    peer: str = ""

    def run_config(self, *, tested: bool) -> Config:
        """Return the run config, with or without a test after every round."""
        return {
            "num-server-rounds": self.rounds, "evaluate-every": 1 if tested else self.rounds,
            "target-accuracy": 0, "fraction-train": self.per_round / 100, "seed": 1, **self.config,
        }  # fmt: skip

    def quickstart_config(self) -> Config:
        """Return the run config of the quickstart."""
        given = {key: value for key, value in self.config.items() if key != "strategy"}
        return {
            "model": given.pop("task"), "num-server-rounds": self.rounds,
            "fraction-train": self.per_round / 100, **given,
        }  # fmt: skip

    def peer_options(self) -> list[str]:
        """Return the peer's command-line options."""
        common = f"--per-round {self.per_round} --rounds {self.rounds}"
        return [*self.peer.split(), *common.split()]


LOGISTIC: Config = {
    "task": "mnist-logistic", "local-steps": 1, "batch-size": 20, "learning-rate": 0.04,
}  # fmt: skip
PEER_LOGISTIC = "--model mnist-logistic --local-steps 1 --batch-size 20 --learning-rate 0.04"
TWO_NN: Config = {"task": "mnist-2nn"}
CASES = {
    "logistic": Case("logistic, 1 step, 10 of 100", 150, 10, LOGISTIC, PEER_LOGISTIC),
    "stc": Case("the same with STC", 150, 10, {"strategy": "stc", **LOGISTIC}),
    "2nn": Case("2NN, E=1 B=10, 10 of 100", 12, 10, TWO_NN, "--model mnist-2nn"),
    "2nn-all": Case("2NN, E=1 B=10, 100 of 100", 5, 100, TWO_NN, "--model mnist-2nn"),
    "cnn": Case("CNN, E=1 B=10, 10 of 100", 5, 10, {"task": "mnist-cnn"}, "--model mnist-cnn"),
}


@dataclass
class Measurements:
    """What was measured in the runs of one engine."""

    seconds: list[float] = field(default_factory=list)
    first: list[float] = field(default_factory=list)
    memory: list[float] = field(default_factory=list)

    @property
    def round_seconds(self) -> float:
        """The median round."""
        return statistics.median(self.seconds)


class Memory:
    """The memory of all processes with a value of `MARK`.

    Attributes:
        peak: The most so far, in GiB; pages that several share are divided among them.
    """

    def __init__(self, mark: str) -> None:
        self.peak = 0.0
        self._mark = f"{MARK}={mark}".encode()

    def look(self) -> None:
        """Take note of it."""
        total = 0
        for process in processes(self._mark):
            try:
                lines = (process / "smaps_rollup").read_text().splitlines()
            except OSError:
                continue
            total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
        self.peak = max(self.peak, total / 2**20)  # kB to GiB


def processes(mark: bytes) -> Iterator[Path]:
    """Yield the processes with that in their environment."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (process / "environ").read_bytes().split(b"\0"):
                yield process
        except OSError:
            continue


def watch(
    command: list[str], environment: Mapping[str, str], rounds: Callable[[str], Iterator[float]]
) -> tuple[list[float], float]:
    """Run a command that prints or writes its rounds; return their seconds, and round 1's end."""
    started = time.monotonic()
    first = 0.0
    seconds: list[float] = []
    with subprocess.Popen(
        command, cwd=ROOT, env={**os.environ, **environment}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        tail: list[str] = []
        for line in process.stdout:
            tail = [*tail[-20:], line]
            for value in rounds(line):
                first = first or time.monotonic() - started
                seconds.append(value)
    if process.returncode or not seconds:
        raise SystemExit(f"{shlex.join(command)}\n{''.join(tail)}")
    return seconds, first


class Engines:
    """Runs cases on the engines; `close` ends Flower's SuperLink.

    An engine is "quickstart", "tested" (RayGrid with a test after every round), "raygrid" (without)
    or "peer".
    """

    def __init__(self, data_dir: str, peer: str | None, folder: Path) -> None:
        self._data_dir, self._peer, self._folder = data_dir, peer, folder
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self._flower = {
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
            "FLWR_HOME": str(folder / "flwr"),
            "FLWR_LOCAL_SUPERLINK_HTTP_API_PORT": str(port),
            "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
            "FLWR_TELEMETRY_ENABLED": "0",
        }
        self.run("quickstart", Case("warm-up", 1, 10, LOGISTIC), Measurements())

    def run(self, engine: str, work: Case, measured: Measurements, times: str = "") -> None:
        """Run the case on an engine and add what it took."""
        environment = {MARK: f"{engine}-{os.getpid()}", FOLDER: times}
        memory = Memory(environment[MARK])
        with repeatedly(memory.look, SAMPLE_SECONDS):
            if engine == "quickstart":
                seconds, first = self._run_quickstart(work, environment)
            elif engine == "peer":
                command = [
                    str(self._peer), "-m", "torch.distributed.run", "--standalone",
                    f"--nproc-per-node={os.cpu_count()}", "-m", "benchmarks.peers.pfl_fedavg",
                    "--data-dir", self._data_dir, *work.peer_options(),
                ]  # fmt: skip
                seconds, first = watch(command, environment, printed_round)
            else:
                seconds, first = self._run_raygrid(work, environment, tested=engine == "tested")
        measured.seconds += seconds[SKIPPED:]
        measured.first.append(first)
        measured.memory.append(memory.peak)

    def _run_quickstart(
        self, work: Case, environment: Mapping[str, str]
    ) -> tuple[list[float], float]:
        log = self._folder / f"quickstart-{time.monotonic_ns()}"
        config = {"data-dir": self._data_dir, "log": str(log), **work.quickstart_config()}
        pairs = [f"{k}='{v}'" if isinstance(v, str) else f"{k}={v}" for k, v in config.items()]
        command = [
            str(BIN / "flwr"), "run", str(ROOT / "benchmarks" / "peers" / "quickstart"), "--stream",
            "-c", " ".join(pairs),
            "--federation-config", "num-supernodes=100 client-resources-num-cpus=1",
        ]  # fmt: skip
        started = time.time()
        watch(command, {**environment, **self._flower}, lambda line: iter([0.0] if line else []))
        times = [json.loads(line)[0] for line in log.read_text().splitlines()]
        return [after - before for before, after in pairwise(times)], times[1] - started

    def _run_raygrid(
        self, work: Case, environment: Mapping[str, str], *, tested: bool
    ) -> tuple[list[float], float]:
        runs = Path(tempfile.mkdtemp(dir=self._folder))
        config = {
            "data-dir": self._data_dir, "run-dir": str(runs), **work.run_config(tested=tested)
        }  # fmt: skip
        command = [sys.executable, "simulation.py", "run"]
        command += [f"--{key}={value}" for key, value in config.items()]
        if environment[FOLDER]:
            command.append("--client-mods=benchmarks.timing:record_duration")
        history = _History(runs)
        with repeatedly(history.look, 0.02):
            watch(command, environment, lambda line: iter([0.0] if line else []))
        return history.seconds(), history.first

    def close(self) -> None:
        """End what Flower left running."""
        for process in processes(f"{MARK}=quickstart-{os.getpid()}".encode()):
            os.kill(int(process.name), signal.SIGTERM)


class _History:
    """The history that a run writes into a folder of its own."""

    def __init__(self, runs: Path) -> None:
        self.first = 0.0
        self._runs, self._started = runs, time.monotonic()

    def look(self) -> None:
        """Note when round 1 is there."""
        if not self.first and len(self._lines()) > 1:
            self.first = time.monotonic() - self._started

    def seconds(self) -> list[float]:
        """Return the seconds of all rounds from 1 on."""
        return [json.loads(line)["seconds"] for line in self._lines()[1:]]

    def _lines(self) -> list[str]:
        found = list(self._runs.glob(f"*/{HISTORY_FILE}"))
        return found[0].read_text().splitlines() if found else []


def printed_round(line: str) -> Iterator[float]:
    """Yield the seconds of the round that a peer has printed."""
    if line.startswith("{") and "seconds" in (record := json.loads(line)):
        yield record["seconds"]


def efficiency(engines: Engines, work: Case, folder: Path) -> float:
    """Return the share of the workers' time in a round that they are inside clients' handlers."""
    times = folder / f"times-{time.monotonic_ns()}"
    times.mkdir()
    measured = Measurements()
    engines.run("raygrid", work, measured, str(times))
    lines = [line for file in times.iterdir() for line in file.read_text().splitlines()]
    by_round: dict[int, float] = {}
    for line in lines:
        server_round, seconds = line.split()
        by_round[int(server_round)] = by_round.get(int(server_round), 0.0) + float(seconds)
    # The last round also tests the global model.
    last = max(by_round)
    inside = sum(value for number, value in by_round.items() if SKIPPED < number < last)
    return inside / (sum(measured.seconds[:-1]) * len(list(times.iterdir())))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument(
        "--rounds", type=int, default=0, help="in place of the cases' own; at least 4"
    )
    parser.add_argument("--peer", help="the Python of an environment with pfl")
    parser.add_argument("--out", type=Path, help="where to write the figures as JSON")
    chosen = parser.parse_args()
    console = Console(width=140)
    table = Table(title="seconds a round")
    for column in COLUMNS:
        table.add_column(column)
    figures = {}
    with tempfile.TemporaryDirectory(prefix="benchmark-engine-") as name:
        engines = Engines(str(Path(chosen.data_dir).resolve()), chosen.peer, Path(name))
        try:
            for key in chosen.cases:
                work = CASES[key]
                work = replace(work, rounds=chosen.rounds or work.rounds)
                names = ["quickstart", "tested", "raygrid"]
                names += ["peer"] if chosen.peer and work.peer else []
                found = {engine: Measurements() for engine in names}
                for repeat in range(chosen.repeats):
                    for engine in names:
                        engines.run(engine, work, found[engine])
                        latest = found[engine]
                        console.print(
                            f"{key} {repeat + 1}/{chosen.repeats} {engine}: "
                            f"{latest.round_seconds:.4f} s a round, round 1 after "
                            f"{latest.first[-1]:.1f} s, {latest.memory[-1]:.2f} GiB"
                        )
                share = efficiency(engines, work, Path(name))
                figures[key] = {
                    engine: {
                        "round-seconds": value.round_seconds,
                        "first-round-seconds": statistics.median(value.first),
                        "peak-gib": max(value.memory),
                    }
                    for engine, value in found.items()
                } | {"efficiency": share}
                table.add_row(work.title, *row(found, share))
        finally:
            engines.close()
    console.print(table)
    if chosen.out:
        chosen.out.write_text(json.dumps(figures, indent=2) + "\n")


def row(found: Mapping[str, Measurements], share: float) -> list[str]:
    """Return a case's cells."""
    quickstart, tested, ours = found["quickstart"], found["tested"], found["raygrid"]
    peer = found.get("peer")
    return [
        f"{quickstart.round_seconds:.4f}",
        f"{tested.round_seconds:.4f}",
        f"{quickstart.round_seconds / tested.round_seconds:.1f}x",
        f"{peer.round_seconds:.4f}" if peer else "-",
        f"{ours.round_seconds:.4f}",
        f"{peer.round_seconds / ours.round_seconds:.2f}x" if peer else "-",
        f"{share:.0%}",
        f"{statistics.median(quickstart.first):.1f}",
        f"{statistics.median(tested.first):.1f}",
        f"{max(quickstart.memory):.2f}",
        f"{max(*tested.memory, *ours.memory):.2f}",
        f"{max(peer.memory):.2f}" if peer else "-",
    ]


if __name__ == "__main__":
    main()
