"""Runs side by side: what each had reached and spent by the end of its rounds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pandas import DataFrame

from fedavg_app.cli.client_statistics import column_of
from fedavg_app.links import Link, link_times
from fedavg_app.results.comparison_names import SEED, Name, group_runs
from fedavg_app.results.finished_run import FinishedRun
from fedavg_app.results.history import virtual_times
from tasks.objective import Objective

# The end of the names of columns that count up to a target.
TO_TARGET = "_to_target"
# The columns of a comparison that say what a row is; numbers follow them.
ABOUT = ["line", "run", "method", "status", "seed", "folder", "chosen_on"]
# What is summed over rounds; a clock beside the wall's follows.
SPENT = ["rejected", "bytes_up", "bytes_down", "seconds"]
LINK, VIRTUAL = "seconds_link", "seconds_virtual"
# The beginning of the name of the column with the best validation values.
VALIDATION = "validation"


@dataclass(frozen=True)
class Comparison:
    """Runs side by side.

    Attributes:
        objective: By which all are judged.
        target: The value of it up to which is counted; None for none.
        runs: The runs, in the order of their lines.
        courses: The rounds of each (`course`).
        numbers: A row for every run: the columns `ABOUT`, then "rounds", "best_accuracy",
            "final_accuracy" (or another objective), if any run has it the best validation value,
            "validation_accuracy", statistics of the clients' own values, such as
            "client:p10_accuracy", and what is `SPENT`, of the whole run; with a target
            "rounds_to_target" and what is spent up to it, NaN where it was not reached.
            Bytes are those of all clients, times are in seconds. A "line" is runs of one name that
            ended alike, "run" what it is called, "method" its `Name`, and "chosen_on" what its best
            round, whose test accuracy is "best_accuracy", was chosen on; the target goes by that,
            too (`fedavg_app.results.history.Best`).
        names: The names of all lines, and of others of their sweep, in order.
    """

    objective: Objective
    target: float | None
    runs: Sequence[FinishedRun]
    courses: Sequence[DataFrame]
    numbers: DataFrame
    names: Sequence[Name]

    @property
    def clock(self) -> str:
        """The column of the clock that all runs have: a link's, their own links', or the wall's."""
        return str(self.courses[0].columns[-1])

    @property
    def has_link(self) -> bool:
        """Whether `clock` is that of a link, or of the runs' own links."""
        return self.clock in (LINK, VIRTUAL)

    @property
    def keys(self) -> list[str]:
        """The columns of numbers."""
        return list(self.numbers.columns[len(ABOUT) :])


def compare_runs(
    runs: Sequence[FinishedRun],
    target: float | None = None,
    link: Link | None = None,
    labels: Sequence[str] = (),
    group_by: Sequence[str] = (),
    courses: Sequence[DataFrame] = (),
    columns: Sequence[str] = (),
) -> list[Comparison]:
    """Return runs side by side, in lines as `group_runs` makes them: a comparison per objective.

    Args:
        runs: The runs, each with a round at least.
        target: The value up to which is counted; None for none. Rounds are counted as in the FedAvg
            paper, the rest to the end of the round that reached it.
        link: Over which the messages are timed; else the clock is that of the runs' own links.
        labels: The lines' names, one for each run; empty for none.
        group_by: Keys; a line has the runs with the same values.
        courses: What runs whose history is not at hand have come to, one `course` for each. All
            that they have spent up to the target is then interpolated between two tests.
        columns: Statistics of the clients' own values, such as "client:p10", to add.

    Raises:
        ConfigError: None of the runs has such a key.
    """
    lines, names = group_runs(runs, labels, group_by)
    placed = [(number, line, run) for number, line in enumerate(lines) for run in line.runs]
    found = dict(zip(map(id, runs), courses or [course(run, link) for run in runs], strict=True))
    timed = all(each[VIRTUAL].iloc[-1] for each in found.values() if VIRTUAL in each)
    compared = []
    for objective in dict.fromkeys(run.objective for _, _, run in placed):
        entries = [entry for entry in placed if entry[2].objective == objective]
        kept = [found[id(run)].drop(columns=[] if timed else VIRTUAL) for _, _, run in entries]
        about = [
            (
                number,
                line.name,
                line.method,
                line.status,
                run.config.get(SEED),
                str(run.folder),
                run.chosen_on,
            )
            for number, line, run in entries
        ]
        taken = [_taken(each, objective, target, is_exact=not courses) for each in kept]
        numbers = DataFrame(about, columns=ABOUT).join(DataFrame(taken, dtype=float))
        judged = [run for _, _, run in entries]
        place = numbers.columns.get_loc(f"final_{objective.name}") + 1
        for column in reversed(columns):
            values = np.array(column_of(judged, column), float)
            numbers.insert(place, f"{column}_{objective.name}", values)
        validated = [run.best and run.best.metrics.validation_metrics for run in judged]
        if any(validated):
            scores = [metrics.get(objective.name) if metrics else None for metrics in validated]
            numbers.insert(place, f"{VALIDATION}_{objective.name}", np.array(scores, float))
        compared.append(Comparison(objective, target, judged, kept, numbers, names))
    return compared


def course(run: FinishedRun, link: Link | None = None) -> DataFrame:
    """Return a row for every round of a run, by its number: what it has come to by its end.

    The columns are "round"; "value", of the objective, and "score", by which the run is judged (on
    validation examples if there are any, or left out), NaN where not tested; and sums over the
    rounds so far: what is `SPENT`, and the time `LINK` or, of the run's own links, `VIRTUAL`.
    """
    history, by = run.history, {"on_clients": run.on_clients}
    values = [metrics.result(run.objective, **by) for metrics in history]
    scores = [metrics.score(run.objective, **by) for metrics in history]
    clock, times = VIRTUAL, virtual_times(history)
    if link is not None:
        clock, times = LINK, link_times(history, link)
    rounds = [metrics.round for metrics in history]
    return DataFrame(
        {
            "round": rounds,
            "value": np.array(values, float),
            "score": np.array(scores, float),
            "rejected": np.cumsum([len(metrics.rejected) for metrics in history]),
            "bytes_up": [metrics.total.get("bytes_up", 0) for metrics in history],
            "bytes_down": [metrics.total.get("bytes_down", 0) for metrics in history],
            "seconds": np.cumsum([metrics.seconds for metrics in history]),
            clock: times,
        },
        index=rounds,
    )


def largest_unit(units: Mapping[str, float], value: float, least: float = 1.0) -> tuple[str, float]:
    """Return the largest unit in which the value is at least this much, or the smallest."""
    fitting = [(name, size) for name, size in units.items() if value >= least * size]
    return fitting[-1] if fitting else next(iter(units.items()))


def _taken(
    rounds: DataFrame,
    objective: Objective,
    target: float | None,
    *,
    is_exact: bool,
) -> dict[str, Any]:
    """Return the numbers of a run from its course."""
    spent = rounds.drop(columns=["round", "value", "score"], errors="ignore")
    tested = rounds.dropna(subset="value")
    scores = tested.get("score", tested["value"])
    curve = list(zip(tested["round"], scores, strict=True))
    best = objective.best_point(curve)
    whole = {
        "rounds": rounds["round"].iloc[-1],
        f"best_{objective.name}": best and tested["value"][tested["round"] == best[0]].iloc[0],
        f"final_{objective.name}": tested["value"].iloc[-1] if curve else None,
        **spent.iloc[-1],
    }
    if target is None:
        return whole
    needed = objective.rounds_to_target(curve, target)
    until = {"rounds": needed, **dict.fromkeys(spent)}
    if needed is not None and is_exact:
        reached = scores.map(lambda value: objective.is_reached(value, target))
        until |= spent.loc[reached.idxmax()]
    elif needed is not None:
        until |= {key: np.interp(needed, tested["round"], tested[key]) for key in spent}
    return whole | {key + TO_TARGET: value for key, value in until.items()}
