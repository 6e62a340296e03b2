"""Statistics of the clients' own values in the last round in which they tested."""

import re
from collections.abc import Collection, Sequence

from fedavg_app.errors import ConfigError
from fedavg_app.results.finished_run import FinishedRun
from fedavg_app.results.history import RoundMetrics, statistic

# The beginning of the names of columns with such a statistic, as in "client:p10".
OF_CLIENTS = "client:"
COLUMN = re.compile(rf"{OF_CLIENTS}(mean|worst|p(100|\d\d?))")
SHOWN = ("mean", "p10", "p90", "worst")


def last_test(run: FinishedRun) -> tuple[RoundMetrics, Collection[float]] | None:
    """Return the last round with clients' values of the run's objective, and the values."""
    name = run.objective.name
    tested = [record for record in run.history if record.client_values.get(name)]
    return (tested[-1], tested[-1].client_values[name].values()) if tested else None


def check_columns(columns: Sequence[str], runs: Sequence[FinishedRun]) -> None:
    """Check the names of columns of a comparison.

    Raises:
        ConfigError: One is no statistic of clients, or no run has clients' values.
    """
    for column in columns:
        if not COLUMN.fullmatch(column):
            fix = "give client:mean, client:worst or a percentile such as client:p10"
            raise ConfigError("column", column, fix)
        if not any(map(last_test, runs)):
            fix = "no client of these runs tested the model; give runs with a fraction-evaluate"
            raise ConfigError("column", column, fix)


def column_of(runs: Sequence[FinishedRun], column: str) -> list[float | None]:
    """Return the value of a column for every run; None for runs without clients' values."""
    tests = [(run.objective.higher_is_better, last_test(run)) for run in runs]
    name = column.removeprefix(OF_CLIENTS)
    return [test and statistic(test[1], name, higher_is_better=higher) for higher, test in tests]
