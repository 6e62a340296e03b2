"""Seconds of this app's start and rounds, beside Flower's engine, Flower's quickstart and pfl.

    python -m benchmarks.engine --data-dir /path/to/mnist [--cases 2nn cnn] [--engines app pfl]
        [--repeats 5] [--rounds 4] [--checkouts . ../before] [--quickstart DIR] [--pfl PYTHON]

The engines in turn do the same work for 100 clients, each time in new processes:

- app: `simulation.py run`, of every checkout. It tests the model after every round.
- untested: the same, but it tests the last model only.
- flwr-run: this app under `flwr run`, whose SuperLink is up already. It tests every round.
- quickstart: an app as in Flower's PyTorch quickstart, under `flwr run`. It tests every round, and
  writes a JSON list of [time, round, accuracy] to `log`; its other keys are in `measure`.
- pfl: `benchmarks.pfl_fedavg`, untested.

The last two know no STC, and average whole models there. Printed are medians and ranges: the
seconds from the command to the end of round 1, of a round in the second half of the run (in the
first the workers may still be starting; the last, which tests, does not count), and to the
command's end. The machine must be quiet.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from tests.support.documents import ROOT
from tests.support.flwr_run import flwr, local_superlink
from tests.support.processes import succeed
from tests.support.usage import repeatedly

Keys = dict[str, str | int | float]
Seconds = tuple[float, float, float]
ENGINES = APP, UNTESTED, FLWR, QUICKSTART, PFL = "app", "untested", "flwr-run", "quickstart", "pfl"
TORCHRUN = f"-m torch.distributed.run --standalone --nproc-per-node={os.cpu_count()} -m"
FEDERATION = "--federation-config", "num-supernodes=100 client-resources-num-cpus=1"
LOGISTIC: Keys = {
    "task": "mnist-logistic", "local-steps": 1, "batch-size": 20, "learning-rate": 0.04,
    "num-server-rounds": 600,
}  # fmt: skip
EPOCH: Keys = {"local-steps": 0, "batch-size": 10, "learning-rate": 0.1}
# Run configs by their name in the table.
CASES: dict[str, Keys] = {
    "2nn": {"task": "mnist-2nn", "num-server-rounds": 40, **EPOCH},
    "cnn": {"task": "mnist-cnn", "num-server-rounds": 6, **EPOCH},
    "logistic": LOGISTIC,
    "stc": {**LOGISTIC, "strategy": "stc"},
}


class Watch:
    """Notes when lines are added to the history of the only run in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.size, self.times = folder, 0, list[float]()

    def __call__(self) -> None:
        """Note the new lines."""
        for file in self.folder.glob("*/history.jsonl"):
            if (size := file.stat().st_size) > self.size:
                new = file.read_bytes().count(b"\n") - len(self.times)
                self.size, self.times = size, self.times + [time.time()] * new


def measure(
    engine: str, checkout: Path, keys: Keys, chosen: argparse.Namespace, flower: dict[str, str]
) -> Seconds:
    """Run an engine; return seconds: to the end of round 1, of a later round, to the end.

    Args:
        engine: Of `ENGINES`.
        checkout: The folder of the app.
        keys: The run config.
        chosen: The command line.
        flower: The environment of `flwr` commands.
    """
    with tempfile.TemporaryDirectory(prefix="benchmark-engine-") as name:
        log, watch, app = Path(name) / "log.json", Watch(Path(name)), checkout
        words = [sys.executable, "simulation.py", "run"]
        if engine in (QUICKSTART, PFL):
            shared = ("local-steps", "batch-size", "num-server-rounds")
            run: Keys = {
                "model": str(keys["task"]).removeprefix("mnist-"), "lr": keys["learning-rate"],
                "data": str(chosen.data_dir), "log": str(log), **{key: keys[key] for key in shared},
            }  # fmt: skip
            app = chosen.quickstart.resolve()
            words = [chosen.pfl, *TORCHRUN.split(), "benchmarks.pfl_fedavg", json.dumps(run)]
        else:
            run = {**keys, "run-dir": name, "target": "none", "data-source": "embedded"}
            if chosen.data_dir:
                run |= {"data-source": "auto", "data-dir": str(chosen.data_dir)}
            if engine == UNTESTED:
                run["evaluate-every"] = keys["num-server-rounds"]
            words += [f"--{key}={value}" for key, value in run.items()]
        began = time.time()
        with repeatedly(watch, 0.005):
            if engine in (FLWR, QUICKSTART):
                pairs = " ".join(f"{key}={value!r}" for key, value in run.items())
                flwr(flower, "run", str(app), "--stream", "-c", pairs, *FEDERATION)
            else:
                paths = {**os.environ, "PYTHONPATH": str(checkout)}  # of Ray's workers, too
                succeed(words, 3600, cwd=checkout, env=paths)
        end = time.time()
        watch()
        logged = json.loads(log.read_text()) if log.exists() else []
    ended = [line[0] for line in logged if line[1]] or watch.times[1:]
    assert len(ended) == keys["num-server-rounds"], f"{engine}: the run failed"
    half = ended[(len(ended) - 1) // 2 : -1]
    a_round = (half[-1] - half[0]) / (len(half) - 1) if len(half) > 1 else float("nan")
    return ended[0] - began, a_round, end - began


def median_and_range(values: Sequence[float]) -> str:
    """Return what is printed of measured seconds."""
    return f"{statistics.median(values):.3g} ({min(values):.3g} to {max(values):.3g})"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir", type=Path, help="MNIST's four files; default: embedded ones")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=ENGINES)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--rounds", type=int, help="instead of the cases'; from 4 on")
    parser.add_argument("--checkouts", nargs="+", type=Path, default=[ROOT])
    parser.add_argument("--quickstart", type=Path, default=ROOT / "../shared/peers/quickstart")
    parser.add_argument("--pfl", type=Path, default=ROOT / ".venv-pfl/bin/python")
    chosen = parser.parse_args()
    data = chosen.data_dir = chosen.data_dir and chosen.data_dir.resolve()
    engines = []
    for engine in chosen.engines:
        needed = {QUICKSTART: chosen.quickstart, PFL: chosen.pfl}.get(engine)
        if needed and not (data and needed.exists()):
            print(f"{engine} is left out: " + (f"no {needed}" if data else "it needs --data-dir"))
        else:
            folders = chosen.checkouts if engine in (APP, UNTESTED) else [ROOT]
            engines += [(engine, folder.resolve()) for folder in folders]
    table = Table("work", "engine", "to round 1's end", "a round", "to the end", box=box.MARKDOWN)
    with tempfile.TemporaryDirectory() as home, local_superlink(home) as flower:
        if {FLWR, QUICKSTART} & {engine for engine, _ in engines}:
            flwr(flower, "ls")  # starts the SuperLink
        for case in chosen.cases:
            keys = CASES[case] | ({"num-server-rounds": chosen.rounds} if chosen.rounds else {})
            runs: list[list[Seconds]] = []
            for _ in range(chosen.repeats):
                runs.append([])
                for engine, folder in engines:
                    runs[-1].append(measure(engine, folder, keys, chosen, flower))
                    print(case, engine, *(f"{seconds:.3g}" for seconds in runs[-1][-1]), flush=True)
            for (engine, folder), found in zip(engines, zip(*runs, strict=True), strict=True):
                title = engine if folder == ROOT else f"{engine}, {folder.name}"
                table.add_row(case, title, *map(median_and_range, zip(*found, strict=True)))
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
