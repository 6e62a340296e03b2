"""The difference between two methods, by pairs of runs of the same seed and partition."""

from dataclasses import dataclass
from math import sqrt

from pandas import DataFrame, MultiIndex, Series

from fedavg_app.cli.comparison import Comparison
from fedavg_app.errors import ConfigError
from fedavg_app.results.comparison_names import SEED

# What the two runs of a pair have in common.
PAIRED_BY = (SEED, "partition", "partition-args")
# The least number of pairs with an interval, and how often such intervals hold the true mean.
LEAST_PAIRS, CONFIDENCE = 3, 0.95


@dataclass(frozen=True)
class Pairs:
    """How runs differ from those of a line.

    Attributes:
        against: The line.
        numbers: A table like `Comparison.numbers` with a row for every run of another line whose
            seed and partition a run of the line has, too. Its numbers are the run's less those of
            that run, NaN where one of the two has none.
    """

    against: str
    numbers: DataFrame


def paired_differences(compared: Comparison, against: str) -> Pairs:
    """Return how the runs of all other lines differ from those of one line.

    Raises:
        ConfigError: There is no such line, one has two runs of the same seed and partition, or
            nothing is a pair.
    """
    names = list(compared.numbers["run"].unique())
    if against not in names:
        raise ConfigError("against", against, f"give the name of a line: {'; '.join(names)}")
    runs = [[run.config.get(key) for key in PAIRED_BY] for run in compared.runs]
    by = MultiIndex.from_tuples(runs, names=PAIRED_BY)
    numbers = compared.numbers.set_index(by)
    for name, line in numbers.groupby("run", sort=False):
        if twice := line.index[line.index.duplicated()].tolist():
            of = zip(PAIRED_BY, twice[0], strict=True)
            what = ", ".join(f"{key} {value}" for key, value in of if value not in ("", None))
            fix = f"{name} has two runs of {what}; leave one out"
            raise ConfigError("against", against, fix)
    base = numbers.loc[numbers["run"] == against, compared.keys]
    others = numbers[(numbers["run"] != against) & numbers.index.isin(base.index)].copy()
    if others.empty:
        fix = "no other line has a run of the same seed, partition and partition-args"
        raise ConfigError("against", against, fix)
    others[compared.keys] -= base.loc[others.index]
    return Pairs(against, others.reset_index(drop=True))


def interval(differences: Series) -> tuple[float, float] | None:
    """Return the 95 % confidence interval of the mean by Student's t; None of fewer than 3 pairs.

    It holds for differences that are normally distributed.
    """
    from scipy.stats import t  # takes a second to import

    differences = differences.dropna()
    if (number := len(differences)) < LEAST_PAIRS:
        return None
    half = t.ppf((1 + CONFIDENCE) / 2, number - 1) * differences.std() / sqrt(number)
    return differences.mean() - half, differences.mean() + half
