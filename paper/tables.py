"""The numbers of an experiment's table, from records, next to the paper's."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedavg_app.config import RunConfig, TrainingConfig, parse_saved
from fedavg_app.links import LINKS
from fedavg_app.results.rounds_to_target import rounds_to_target
from fedavg_app.server.cohort import cohort_size
from fedavg_app.server.preparation import load_task
from fedavg_app.sweep.identity import Identity
from paper.experiments import Cell, Column, Entry, Experiment, Measure, Run
from paper.records import Record, Stored, find


@dataclass(frozen=True)
class Done:
    """A run that has a record.

    Attributes:
        path: The record's file.
        value: What the experiment measures: rounds, an accuracy in [0, 1] or megabytes; None where
            the target was not reached.
    """

    run: Run
    path: Path
    record: Record
    value: float | None

    @property
    def hours(self) -> float:
        """How long the run took."""
        return float(self.record.summary["seconds"]) / 3600


@dataclass(frozen=True)
class Result:
    """A cell with what was run of it.

    Attributes:
        done: All its runs that have a record.
        best: Of these, those with the best of its grid: they differ in the seed only.
        value: Their mean, of those that reached the target; None unless most of them did, for it
            would be that of the luckiest seeds.
        speedup: The column's first value divided by this value; None if there is none, or none
            asked for.
        speedup_above: Where the column's first did not arrive: what it had spent by its end, by
            this value.
        paper: What the paper has; None where nothing.
        paper_speedup: Likewise from the paper's values.
        others: What earlier replications have; None where nothing.
        difference: Of the value from the paper's: relative to it (0.1 for 10 % more), but for an
            accuracy just the difference.
    """

    cell: Cell
    done: tuple[Done, ...]
    best: tuple[Done, ...]
    value: float | None = None
    speedup: float | None = None
    speedup_above: float | None = None
    paper: Entry | None = None
    paper_speedup: float | None = None
    others: Entry | None = None
    difference: float | None = None


def fill(experiment: Experiment, records: Mapping[Identity, Stored]) -> list[list[Result]]:
    """Return the table by row and column.

    Raises:
        ConfigError: A run of the experiment has settings that cannot be used.
    """
    table: list[list[Result]] = []
    for cells in experiment.cells():
        results = []
        for place, cell in enumerate(cells):
            first = table[0][place] if table else None
            results.append(_result(experiment, cell, place, records, first))
        table.append(results)
    return table


def _result(
    experiment: Experiment,
    cell: Cell,
    place: int,
    records: Mapping[Identity, Stored],
    first: Result | None,
) -> Result:
    done = tuple(
        Done(run, found.path, found.record, measure(found.record, experiment.measure, cell.column))
        for run in cell.runs
        if (found := find(records, run.config))
    )
    best = best_of_grid(done, experiment.measure, cell.column)
    values = [result.value for result in best if result.value is not None]
    value = float(np.mean(values)) if 2 * len(values) > len(best) else None
    paper, others = (
        entries[place] if entries and entries[place] != "" else None
        for entries in (cell.row.paper, cell.row.others)
    )
    wanted = experiment.speedup
    return Result(
        cell,
        done,
        best,
        value,
        speedup=_ratio(first.value if first else value, value) if wanted else None,
        speedup_above=_ratio(_spent(first, experiment.measure), value) if wanted else None,
        paper=paper,
        paper_speedup=_ratio(first.paper if first else paper, paper) if wanted else None,
        others=others,
        difference=_difference(value, paper, experiment.measure),
    )


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
    curve = record_curve(record, column.within)
    if kind == "best-accuracy":
        return max((accuracy for _, accuracy in curve), default=None)
    target = column.target or record.summary["target-accuracy"]
    rounds = rounds_to_target(curve, target) if target else None
    if rounds is None or kind == "rounds-to-target":
        return rounds
    return float(np.interp(rounds, record.history.round, cost(record, kind, column)))


def cost(record: Record, kind: Measure, column: Column) -> Sequence[float]:
    """Return the rounds, megabytes or minutes by every test of the global model."""
    if kind == "rounds-to-target":
        return record.history.round
    if kind != "minutes-to-target":
        return megabytes(record, kind)
    if record.history.virtual_seconds:
        return [seconds / 60 for seconds in record.history.virtual_seconds]
    assert column.link is not None  # the experiment has checked it
    link, rounds = LINKS[column.link], record.history.round
    up, both = (megabytes(record, each) for each in ("upload-to-target", "traffic-to-target"))
    computing = computing_seconds(parse_saved(record.config))
    return [
        (link.seconds(1e6 * sent, 1e6 * (all_ - sent), n) + computing * n) / 60
        for sent, all_, n in zip(up, both, rounds, strict=True)
    ]


def computing_seconds(config: TrainingConfig) -> float:
    """Return what a round's local steps take on the reference core.

    It is 0 where epochs, or batches of all examples (batch-size 0), are counted.
    """
    if not isinstance(config, RunConfig):
        return 0.0
    return config.local_steps * config.batch_size * load_task(config).seconds_per_example


def record_curve(record: Record, within: int | None = None) -> list[tuple[int, float]]:
    """Return (round, test accuracy) for every test of the global model in so many rounds."""
    curve = zip(record.history.round, record.history.accuracy, strict=True)
    return [(number, accuracy) for number, accuracy in curve if not within or number <= within]


def megabytes(record: Record, kind: Measure) -> list[float]:
    """Return a participant's traffic by every test of the global model, in 10^6 bytes.

    That is all traffic divided by the participants of a round, as the papers count: what a
    participant of every round has sent. For "traffic-to-target" it includes what participants have
    been sent on average, which is more for those that have missed rounds.
    """
    config, history = parse_saved(record.config), record.history
    if not isinstance(config, RunConfig) or not history.bytes_up:
        return [0.0] * len(history.round)
    participants = cohort_size(config.fraction_train, config.num_clients)
    totals = np.array(history.bytes_up, float)
    if kind == "traffic-to-target":
        totals += history.bytes_down
    each: list[float] = (totals / participants / 1e6).tolist()
    return each


def best_of_grid(done: Sequence[Done], kind: Measure, column: Column) -> tuple[Done, ...]:
    """Return the runs with the best setting but for the seed, as the papers choose it: on the test.

    Better is where more of the seeds reach the target; then the better mean of those that do; then
    the better accuracy in the rounds that count in this column.
    """
    settings: dict[frozenset[tuple[str, Any]], list[Done]] = {}
    for entry in done:
        chosen = {key: value for key, value in entry.run.chosen.items() if key != "seed"}
        settings.setdefault(frozenset(chosen.items()), []).append(entry)
    sign = -1.0 if kind == "best-accuracy" else 1.0

    def rank(runs: list[Done]) -> tuple[float, float, float]:
        values = [entry.value for entry in runs if entry.value is not None]
        accuracies = [measure(entry.record, "best-accuracy", column) or 0.0 for entry in runs]
        mean = sign * float(np.mean(values)) if values else math.inf
        return 1 - len(values) / len(runs), mean, -max(accuracies)

    best: list[Done] = min(settings.values(), key=rank, default=[])
    return tuple(best)


def _spent(result: Result | None, kind: Measure) -> float | None:
    """Return what a cell has spent without arriving; None where it has arrived."""
    if result is None or result.value is not None or kind == "best-accuracy":
        return None
    ends = []
    for record in (entry.record for entry in result.best if entry.record.status == "finished"):
        last = len(record_curve(record, result.cell.column.within)) - 1
        ends.append(cost(record, kind, result.cell.column)[last])
    return min(ends, default=None)


def _ratio(first: Entry | None, value: Entry | None) -> float | None:
    if isinstance(first, str | None) or isinstance(value, str | None) or not value:
        return None
    return first / value


def _difference(value: float | None, paper: Entry | None, kind: Measure) -> float | None:
    if value is None or isinstance(paper, str | None) or not paper:
        return None
    return value - paper if kind == "best-accuracy" else value / paper - 1
