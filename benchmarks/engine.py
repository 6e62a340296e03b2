"""RayGrid next to what a Flower user has otherwise, and to a peer, on the same work in one run.

    python -m benchmarks.engine --data-dir /path/to/mnist [--cases logistic cnn] [--repeats 3]
        [--rounds 5] [--peer .venv-pfl/bin/python]

Each case is one run config. The quickstart (benchmarks/peers/quickstart: an app as in Flower's
PyTorch quickstart, under `flwr run`, its SuperLink already up) and RayGrid (`simulation.py`) run it
in turn, each time in new processes, and test the global model after every round. The peer (see
benchmarks/peers/) and RayGrid run it without these tests. Printed are medians over all rounds but
the first two of all repeats, the time from the command to the end of round 1, the largest sum of
the processes' memory (shared pages divided among those that share them), and how much of RayGrid's
round without tests its workers were inside clients' handlers, which is training but for the reading
and writing of arrays.

Processes are found by a variable in their environment.
"""

import argparse
import json
import os
import shlex
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import psutil
from rich.console import Console
from rich.table import Table

from benchmarks.background import repeatedly
from benchmarks.stages import FILE
from fedavg_app.results.run_folder import HISTORY_FILE

ROOT = Path(__file__).parents[1]
BIN = Path(sys.executable).parent
# Environment variable by which the processes of an engine are found.
MARK = "FEDAVG_APP_BENCHMARK"
# The first rounds, which are not counted.
SKIPPED = 2
COLUMNS = (
    "", "quickstart", "RayGrid", "ratio", "peer", "untested", "ratio", "efficiency",
    "round 1: quickstart", "RayGrid", "GiB: quickstart", "RayGrid", "peer",
)  # fmt: skip
QUICKSTART, TESTED, UNTESTED, PEER = "quickstart", "RayGrid", "RayGrid, untested", "peer"


@dataclass(frozen=True)
class Case:
    """One piece of work for 100 clients.

    Attributes:
        title: What it is.
        rounds: How many rounds are run.
        per_round: How many of the clients take part in each.
        config: Its own keys of the run config.
    """

    title: str
    rounds: int
    per_round: int
    config: Mapping[str, str | int | float]

    @property
    def elsewhere(self) -> dict[str, str | int | float]:
        """The keys by which the quickstart and the peer know the same work, dense in any case."""
        given = {key: value for key, value in self.config.items() if key != "strategy"}
        return {"model": given.pop("task"), **given}


LOGISTIC = {"task": "mnist-logistic", "local-steps": 1, "batch-size": 20, "learning-rate": 0.04}
CASES = {
    "logistic": Case("logistic, 1 step, 10 of 100", 150, 10, LOGISTIC),
    "stc": Case("the same with STC", 150, 10, {"strategy": "stc", **LOGISTIC}),
    "2nn": Case("2NN, E=1 B=10, 10 of 100", 12, 10, {"task": "mnist-2nn"}),
    "2nn-all": Case("2NN, E=1 B=10, 100 of 100", 5, 100, {"task": "mnist-2nn"}),
    "cnn": Case("CNN, E=1 B=10, 10 of 100", 5, 10, {"task": "mnist-cnn"}),
}


@dataclass
class Measurements:
    """What was measured in the runs of one engine: a value a round, and a value or two a run."""

    seconds: list[float] = field(default_factory=list)
    first: list[float] = field(default_factory=list)
    memory: list[float] = field(default_factory=list)

    @property
    def round_seconds(self) -> float:
        """The median round."""
        return statistics.median(self.seconds)


def processes(mark: str) -> Iterator[psutil.Process]:
    """Yield the processes with that value of `MARK`."""
    for process in psutil.process_iter(["environ"]):
        if (process.info["environ"] or {}).get(MARK) == mark:
            yield process


def memory_gib(mark: str) -> float:
    """Return their memory; pages that several share are divided among them."""
    total = 0
    for process in processes(mark):
        try:
            total += process.memory_full_info().pss
        except psutil.Error:  # it has ended
            continue
    return total / 2**30


class Engines:
    """Runs cases on the engines; `close` ends Flower's SuperLink."""

    def __init__(self, data_dir: str, peer: str | None, folder: Path) -> None:
        self._data_dir, self._peer, self._folder = data_dir, peer, folder
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self._environment = {
            **os.environ,
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
            "FLWR_HOME": str(folder / "flwr"),
            "FLWR_LOCAL_SUPERLINK_HTTP_API_PORT": str(port),
            "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
            "FLWR_TELEMETRY_ENABLED": "0",
        }
        self.run(QUICKSTART, Case("warm-up", 1, 10, LOGISTIC), Measurements())

    def run(self, engine: str, work: Case, measured: Measurements, stages: str = "") -> None:
        """Run the case on an engine and add what it took.

        Args:
            engine: Which.
            work: The case.
            measured: Where it is added.
            stages: A file for `benchmarks.stages`, if RayGrid's clients are to record theirs.
        """
        mark, most = f"{engine}-{os.getpid()}", [0.0]
        self._environment |= {MARK: mark, FILE: stages}
        run = {QUICKSTART: self._quickstart, PEER: self._run_peer}.get(engine, self._raygrid)
        with repeatedly(lambda: most.append(memory_gib(mark)), 0.5):
            seconds, first = run(work, engine, bool(stages))
        measured.seconds += seconds[SKIPPED:]
        measured.first.append(first)
        measured.memory.append(max(most))

    def _quickstart(self, work: Case, *_: object) -> tuple[list[float], float]:
        log = self._folder / f"quickstart-{time.monotonic_ns()}"
        config = {
            "data-dir": self._data_dir, "log": str(log), "num-server-rounds": work.rounds,
            "fraction-train": work.per_round / 100, **work.elsewhere,
        }  # fmt: skip
        pairs = [f"{k}='{v}'" if isinstance(v, str) else f"{k}={v}" for k, v in config.items()]
        started = time.time()
        self._call(
            str(BIN / "flwr"), "run", str(ROOT / "benchmarks" / "peers" / "quickstart"), "--stream",
            "-c", " ".join(pairs),
            "--federation-config", "num-supernodes=100 client-resources-num-cpus=1",
        )  # fmt: skip
        times = [json.loads(line)[0] for line in log.read_text().splitlines()]
        return [after - before for before, after in pairwise(times)], times[1] - started

    def _raygrid(self, work: Case, engine: str, staged: bool) -> tuple[list[float], float]:
        runs = Path(tempfile.mkdtemp(dir=self._folder))
        config = {
            "data-dir": self._data_dir, "run-dir": str(runs), "num-server-rounds": work.rounds,
            "evaluate-every": 1 if engine == TESTED else work.rounds, "target-accuracy": 0,
            "fraction-train": work.per_round / 100, **work.config,
        }  # fmt: skip
        if staged:
            config["client-mods"] = "benchmarks.stages:record_stages"
        started, first = time.monotonic(), list[float]()

        def lines() -> list[str]:
            found = list(runs.glob(f"*/{HISTORY_FILE}"))
            return found[0].read_text().splitlines() if found else []

        def look() -> None:
            if not first and len(lines()) > 1:
                first.append(time.monotonic() - started)

        with repeatedly(look, 0.02):
            options = [f"--{key}={value}" for key, value in config.items()]
            self._call(sys.executable, "simulation.py", "run", *options)
        return [json.loads(line)["seconds"] for line in lines()[1:]], first[0]

    def _run_peer(self, work: Case, *_: object) -> tuple[list[float], float]:
        printed = self._call(
            str(self._peer), "-m", "torch.distributed.run", "--standalone",
            f"--nproc-per-node={os.cpu_count()}", "-m", "benchmarks.peers.pfl_fedavg",
            "--data-dir", self._data_dir, f"--per-round={work.per_round}",
            f"--rounds={work.rounds}", *(f"--{k}={v}" for k, v in work.elsewhere.items()),
        )  # fmt: skip
        rounds = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
        seconds = [found["seconds"] for found in rounds if "seconds" in found]
        return seconds, rounds[0]["started"] + seconds[0]

    def _call(self, *command: str) -> str:
        done = subprocess.run(
            command, cwd=ROOT, env=self._environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        if done.returncode:
            raise SystemExit(f"{shlex.join(command)}\n{done.stdout[-2000:]}")
        return done.stdout

    def efficiency(self, work: Case) -> float:
        """Return the share of the workers' time in a round that they are in clients' handlers."""
        file, measured = self._folder / f"stages-{time.monotonic_ns()}", Measurements()
        self.run(UNTESTED, work, measured, str(file))
        stages = [json.loads(line) for line in file.read_text().splitlines()]
        inside = Counter[int]()
        for found in stages:
            inside[found["round"]] += found["done"] - found["imported"]
        # The last round also tests the global model.
        counted = sum(inside[number] for number in range(SKIPPED + 1, work.rounds))
        workers = len({found["process"] for found in stages})
        return counted / (sum(measured.seconds[:-1]) * workers)

    def close(self) -> None:
        """End what Flower left running."""
        for process in processes(f"{QUICKSTART}-{os.getpid()}"):
            process.terminate()


def row(title: str, found: Mapping[str, Measurements], share: float) -> list[str]:
    """Return a case's cells."""
    quickstart, tested, ours = found[QUICKSTART], found[TESTED], found[UNTESTED]
    peer = found.get(PEER)
    return [
        title,
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


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--rounds", type=int, help="in place of the cases' own; at least 4")
    parser.add_argument("--peer", help="the Python of an environment with pfl")
    chosen = parser.parse_args()
    console = Console(width=140)
    table = Table(*COLUMNS, title="seconds a round")
    with tempfile.TemporaryDirectory(prefix="benchmark-engine-") as name:
        engines = Engines(str(Path(chosen.data_dir).resolve()), chosen.peer, Path(name))
        try:
            for case in map(CASES.get, chosen.cases):
                work = Case(case.title, chosen.rounds or case.rounds, case.per_round, case.config)
                names = [QUICKSTART, TESTED, UNTESTED]
                names += [PEER] if chosen.peer and "strategy" not in case.config else []
                found = {engine: Measurements() for engine in names}
                for engine in names * chosen.repeats:
                    engines.run(engine, work, latest := found[engine])
                    console.print(
                        f"{work.title}, {engine}: {latest.round_seconds:.4f} s a round, round 1 "
                        f"after {latest.first[-1]:.1f} s, {latest.memory[-1]:.2f} GiB"
                    )
                table.add_row(*row(work.title, found, engines.efficiency(work)))
        finally:
            engines.close()
    console.print(table)


if __name__ == "__main__":
    main()
