"""The numbers of an experiment's table, from records, next to the paper's."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedavg_app.config import RunConfig, TrainingConfig, parse_saved
from fedavg_app.links import LINKS
from fedavg_app.server.cohort import cohort_size
from fedavg_app.server.preparation import load_task
from fedavg_app.sweep.planned_run import Identity
from paper.experiments import Cell, Column, Entry, Experiment, Measure, Run
from paper.records import Record, find
from tasks.objective import Objective


@dataclass(frozen=True)
class Done:
    """A run that has a record.

    Attributes:
        value: What the experiment measures: rounds, an accuracy in [0, 1], megabytes or minutes;
            None where the target was not reached.
    """

    run: Run
    record: Record
    value: float | None

    @property
    def hours(self) -> float:
        """How long the run took."""
        return float(self.record.summary["seconds"]) / 3600


@dataclass(frozen=True)
class Result:
    """A cell with what was run of it, next to the paper's; None is what there is not.

    Attributes:
        done: All its runs that have a record.
        best: Of these, those with the best of its grid: they differ in the seed only.
        value: Their mean, of those that reached the target; None unless most of them did, for it
            would be that of the luckiest seeds.
        speedup: The column's first value divided by this value, if asked for.
        speedup_above: Where the column's first did not arrive: what it had spent by its end, by
            this value.
        paper_speedup: Likewise from the paper's values.
        difference: Of the value from the paper's: relative to it (0.1 for 10 % more), but for an
            accuracy just the difference.
    """

    cell: Cell
    done: tuple[Done, ...]
    best: tuple[Done, ...]
    value: float | None = None
    speedup: float | None = None
    speedup_above: float | None = None
    paper_speedup: float | None = None
    difference: float | None = None

    @property
    def values(self) -> list[float | None]:
        """What each of the best runs has."""
        return [run.value for run in self.best]


def fill(experiment: Experiment, records: Mapping[Identity, Record]) -> list[list[Result]]:
    """Return the table by row and column.

    Raises:
        ConfigError: A run of the experiment has settings that cannot be used.
    """
    table: list[list[Result]] = []
    for cells in experiment.cells():
        firsts: Sequence[Result | None] = table[0] if table else [None] * len(cells)
        table.append(
            [
                _result(experiment, cell, records, first)
                for cell, first in zip(cells, firsts, strict=True)
            ]
        )
    return table


def _result(
    experiment: Experiment, cell: Cell, records: Mapping[Identity, Record], first: Result | None
) -> Result:
    kind, paper = experiment.measure, cell.paper
    done = tuple(
        Done(run, found, measure(found, kind, cell.column))
        for run in cell.runs
        if (found := find(records, run.config))
    )
    best = best_of_grid(done, kind, cell.column)
    arrived = [result.value for result in best if result.value is not None]
    value = float(np.mean(arrived)) if 2 * len(arrived) > len(best) else None
    speedups: dict[str, float | None] = {}
    if experiment.speedup:
        speedups["speedup"] = _ratio(first.value if first else value, value)
        speedups["paper_speedup"] = _ratio(first.cell.paper if first else paper, paper)
        if first and first.value is None and kind != "best-accuracy":
            ended = (run.record for run in first.best if run.record.status == "finished")
            ends = [spent(record, kind, first.cell.column)[-1] for record in ended]
            speedups["speedup_above"] = _ratio(min(ends, default=None), value)
    difference = None
    if value is not None and isinstance(paper, float) and paper:
        difference = value - paper if kind == "best-accuracy" else value / paper - 1
    return Result(cell, done, best, value, difference=difference, **speedups)


def measure(record: Record, kind: Measure, column: Column) -> float | None:
    """Return what a run gives.

    Args:
        record: The run.
        kind: What to measure.
        column: The accuracy and the rounds that count; None takes the run's own.

    Returns:
        Rounds, an accuracy in [0, 1], megabytes (10^6 bytes) that one participant sent, or minutes;
        None where the target was not reached or nothing tested.
    """
    curve = curve_of(record, column)
    if kind == "best-accuracy":
        return max((accuracy for _, accuracy in curve), default=None)
    target = column.target or record.summary["target-accuracy"]
    rounds = Objective().rounds_to_target(curve, target) if target else None
    if rounds is None or kind == "rounds-to-target":
        return rounds
    return float(np.interp(rounds, [number for number, _ in curve], spent(record, kind, column)))


def curve_of(record: Record, column: Column) -> list[tuple[int, float]]:
    """Return (round, test accuracy) for every test of the global model that counts in a column."""
    curve = zip(record.history.round, record.history.accuracy, strict=True)
    return [point for point in curve if not column.within or point[0] <= column.within]


def spent(record: Record, kind: Measure, column: Column) -> NDArray[np.float64]:
    """Return the rounds, megabytes or minutes by every test of `curve_of`.

    Megabytes are those of a participant, 10^6 bytes: all traffic divided by the participants of a
    round, as the papers count, so what a participant of every round has sent. Those of
    "traffic-to-target" include what participants have been sent on average, which is more for those
    that have missed rounds.
    """
    history, config = record.history, parse_saved(record.config)
    rounds = np.array(history.round, float)[: len(curve_of(record, column))]
    if kind in ("rounds-to-target", "best-accuracy"):
        return rounds
    if kind == "minutes-to-target" and history.virtual_seconds:
        return np.array(history.virtual_seconds)[: len(rounds)] / 60
    up = down = np.zeros(len(rounds))
    if isinstance(config, RunConfig) and history.bytes_up:
        participants = cohort_size(config.fraction_train, config.num_clients)
        up, down = (
            np.array(each, float)[: len(rounds)] / participants
            for each in (history.bytes_up, history.bytes_down)
        )
    if kind == "minutes-to-target":
        assert column.link is not None  # the experiment has checked it
        each = zip(up, down, rounds, strict=True)
        times = np.array([LINKS[column.link].seconds(*sent) for sent in each])
        return (times + computing_seconds(config) * rounds) / 60
    return (up + down if kind == "traffic-to-target" else up) / 1e6


def computing_seconds(config: TrainingConfig) -> float:
    """Return what a round's local steps take on the reference core.

    It is 0 where epochs, or batches of all examples (batch-size 0), are counted.
    """
    if not isinstance(config, RunConfig):
        return 0.0
    return config.local_steps * config.batch_size * load_task(config).seconds_per_example


def best_of_grid(done: Sequence[Done], kind: Measure, column: Column) -> tuple[Done, ...]:
    """Return the runs with the best setting but for the seed, as the papers choose it: on the test.

    Better is where more of the seeds reach the target; then the better mean of those that do; then
    the better accuracy in the rounds that count in this column.
    """
    settings: dict[str, list[Done]] = {}
    for entry in done:
        chosen = {key: value for key, value in entry.run.chosen.items() if key != "seed"}
        settings.setdefault(repr(sorted(chosen.items())), []).append(entry)
    sign = -1.0 if kind == "best-accuracy" else 1.0

    def rank(runs: list[Done]) -> tuple[float, float, float]:
        values = [entry.value for entry in runs if entry.value is not None]
        accuracies = [measure(entry.record, "best-accuracy", column) or 0.0 for entry in runs]
        mean = sign * float(np.mean(values)) if values else math.inf
        return 1 - len(values) / len(runs), mean, -max(accuracies)

    best: list[Done] = min(settings.values(), key=rank, default=[])
    return tuple(best)


def _ratio(first: Entry | None, value: Entry | None) -> float | None:
    if isinstance(first, str | None) or isinstance(value, str | None) or not value:
        return None
    return first / value
