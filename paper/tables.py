"""The numbers of an experiment's table, as `fedavg compare` counts them, next to the paper's."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from pandas import DataFrame

from fedavg_app.cli.comparison import TO_TARGET, VIRTUAL, Comparison, compare_runs
from fedavg_app.config import RunConfig, parse_saved
from fedavg_app.links import LINKS
from fedavg_app.server.client_sampling import cohort_size
from fedavg_app.server.preparation import load_task
from fedavg_app.sweep.planned_run import Identity, PlannedRun
from paper.experiments import Cell, Column, Entry, Experiment, Measure
from paper.records import Record, find

# By measure, the columns of a comparison that it adds up, and the size of its unit.
MEASURES: Mapping[Measure, tuple[Sequence[str], float]] = {
    "rounds-to-target": (["rounds"], 1), "best-accuracy": (["best_accuracy"], 1),
    "upload-to-target": (["bytes_up"], 1e6), "traffic-to-target": (["bytes_up", "bytes_down"], 1e6),
    "minutes-to-target": ([VIRTUAL], 60),
}  # fmt: skip


@dataclass(frozen=True)
class Done:
    """A run that has a record.

    Attributes:
        value: What the experiment measures: rounds, an accuracy in [0, 1], megabytes or minutes;
            None where the target was not reached.
        best: Its best accuracy in the rounds that count.
        end: What it had spent by its end, or its best accuracy.
    """

    run: PlannedRun
    record: Record
    value: float | None
    best: float
    end: float

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
    columns = [
        _column(experiment, column, records) for column in zip(*experiment.cells(), strict=True)
    ]
    return [list(row) for row in zip(*columns, strict=True)]


def compare_records(
    records: Sequence[Record], column: Column, labels: Sequence[str] = ()
) -> Comparison:
    """Return the runs of at least one record side by side, in lines of the same label.

    Args:
        records: The records.
        column: The target, rounds and link that count; without a target the runs' own does.
        labels: The lines' names, one for each record; empty for a line each.
    """
    runs = [own.run for own in records]
    target = column.target or runs[0].summary[f"target-{runs[0].objective.name}"]
    labels = labels or [str(record.path) for record in records]
    courses = [course_of(record, column) for record in records]
    (compared,) = compare_runs(runs, target, labels=labels, courses=courses)
    return compared


def course_of(record: Record, column: Column) -> DataFrame:
    """Return what a run had come to by each of its tests, up to the column's limit.

    Bytes are those of one participant: all traffic divided by the participants of a round, as the
    papers count, so what a participant of every round has sent. What it was sent is the average,
    which is more for those that have missed rounds. The virtual clock of a run without links is
    that of these bytes over the column's link, and of the local steps on the reference core; these
    take no time where epochs, or batches of all examples (batch-size 0), are counted.
    """
    kept, config = record.history, parse_saved(record.config)
    rounds = np.array([each for each in kept.round if each <= (column.within or each)])
    up, down, clock = (
        np.array(values or [0] * len(kept.round), float)[: len(rounds)]
        for values in (kept.bytes_up, kept.bytes_down, kept.virtual_seconds)
    )
    if isinstance(config, RunConfig):
        size = cohort_size(config.fraction_train, config.num_clients)
        up, down = up / size, down / size
    if column.link and not kept.virtual_seconds:
        sent = zip(up, down, rounds, strict=True)
        clock = np.array([LINKS[column.link].seconds(*each) for each in sent])
        if isinstance(config, RunConfig) and (examples := config.local_steps * config.batch_size):
            clock += examples * load_task(config).seconds_per_example * rounds
    own = {"round": rounds, "value": kept.value[: len(rounds)]}
    spent = {"bytes_up": up, "bytes_down": down, VIRTUAL: clock}
    return DataFrame({**own, **spent}, index=rounds)


def measured(compared: Comparison, kind: Measure, end: str = TO_TARGET) -> dict[str, float | None]:
    """Return what each run gives by its record's path; None where the target was not reached.

    Args:
        compared: The runs.
        kind: What to measure.
        end: Of the columns' names: empty for whole runs.

    Returns:
        Rounds, an accuracy in [0, 1], megabytes (10^6 bytes) that one participant sent, or minutes,
        interpolated between two tests.
    """
    keys, unit = MEASURES[kind]
    end = "" if kind == "best-accuracy" else end
    names = [key + end for key in keys]
    values = compared.numbers.reindex(columns=names).sum(axis="columns", skipna=False) / unit
    found = zip(compared.numbers["folder"], values, strict=True)
    return {folder: None if math.isnan(value) else float(value) for folder, value in found}


def _column(
    experiment: Experiment, cells: Sequence[Cell], records: Mapping[Identity, Record]
) -> Iterator[Result]:
    kind = experiment.measure
    found = {run.slug: find(records, run.config) for cell in cells for run in cell.runs}
    values, best, ends = (dict[str, float | None]() for _ in range(3))
    if own := {record.path: record for record in found.values() if record}:
        compared = compare_records(list(own.values()), cells[0].column)
        values, best = measured(compared, kind), measured(compared, "best-accuracy")
        ends = measured(compared, kind, end="")
    first: Result | None = None
    for cell in cells:
        done = tuple(
            Done(run, record, values[path], best[path] or 0.0, ends[path] or 0.0)
            for run in cell.runs
            if (record := found[run.slug]) and (path := str(record.path))
        )
        result = _result(experiment, cell, done, first)
        first = first or result
        yield result


def _result(
    experiment: Experiment, cell: Cell, done: tuple[Done, ...], first: Result | None
) -> Result:
    kind, paper = experiment.measure, cell.paper
    best = best_of_grid(done, kind)
    arrived = [run.value for run in best if run.value is not None]
    value = float(np.mean(arrived)) if 2 * len(arrived) > len(best) else None
    speedups: dict[str, float | None] = {}
    if experiment.speedup:
        speedups["speedup"] = _ratio(first.value if first else value, value)
        speedups["paper_speedup"] = _ratio(first.cell.paper if first else paper, paper)
        if first and first.value is None and kind != "best-accuracy":
            ends = [run.end for run in first.best if run.record.status == "finished"]
            speedups["speedup_above"] = _ratio(min(ends, default=None), value)
    difference = None
    if value is not None and isinstance(paper, float) and paper:
        difference = value - paper if kind == "best-accuracy" else value / paper - 1
    return Result(cell, done, best, value, difference=difference, **speedups)


def best_of_grid(done: Sequence[Done], kind: Measure) -> tuple[Done, ...]:
    """Return the runs with the best setting but for the seed, as the papers choose it: on the test.

    Better is where more of the seeds reach the target; then the better mean of those that do; then
    the better accuracy in the rounds that count in this column.
    """
    settings: dict[str, list[Done]] = {}
    for entry in done:
        settings.setdefault(str(entry.run.method), []).append(entry)
    sign = -1.0 if kind == "best-accuracy" else 1.0

    def rank(runs: list[Done]) -> tuple[float, float, float]:
        values = [entry.value for entry in runs if entry.value is not None]
        mean = sign * float(np.mean(values)) if values else math.inf
        return 1 - len(values) / len(runs), mean, -max(entry.best for entry in runs)

    best: list[Done] = min(settings.values(), key=rank, default=[])
    return tuple(best)


def _ratio(first: Entry | None, value: Entry | None) -> float | None:
    if isinstance(first, str | None) or isinstance(value, str | None) or not value:
        return None
    return first / value
