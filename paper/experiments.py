"""A table of a paper as a file: which runs fill it, and what the paper printed there.

docs/experiments.md has the keys of a file in paper/experiments/, which is TOML. Of what the table
and the columns say, a row of central training takes over what that knows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from fedavg_app.config import CentralConfig, RunConfig, TrainingConfig, kebab
from fedavg_app.errors import ConfigError
from fedavg_app.links import LinkName
from fedavg_app.results.comparison_names import SEED
from fedavg_app.sweep.grid import combinations, plan_run, read_keys
from fedavg_app.sweep.planned_run import PlannedRun
from tasks.arguments import Arguments

Entry = float | str
# Keys of a row with an entry for each column.
BY_COLUMN = ("paper", "others", "hours")
Measure = Literal[
    "rounds-to-target", "best-accuracy", "upload-to-target", "traffic-to-target",
    "minutes-to-target",
]  # fmt: skip
Keys = dict[str, Any]  # of the run config, by kebab-case key; a list is a grid


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Column(_Part):
    """A column: its keys, a link, and what target and rounds count, if not the runs' own."""

    name: str
    run: Keys = {}
    target: float | None = Field(None, gt=0)
    within: int | None = Field(None, ge=1)
    link: LinkName | None = None


class Row(_Part):
    """A row: its keys, and by column what the paper and others have there, and a run's hours."""

    name: str
    run: Keys = {}
    paper: list[Entry] = []
    others: list[Entry] = []
    hours: list[Annotated[float, Field(ge=0)]] = []
    central: bool = False

    def entries(self, place: int) -> tuple[Entry | None, Entry | None, float]:
        """Return what the paper has in a column, what others have, and the hours of a run."""
        paper, others = (
            entries[place] if entries and entries[place] != "" else None
            for entries in (self.paper, self.others)
        )
        return paper, others, self.hours[place] if self.hours else 0.0


@dataclass(frozen=True)
class Cell:
    """A cell of the table: all the runs of its grid.

    Attributes:
        grid: The keys with several values, but for the seed.
        paper: What the paper has; None where nothing.
        others: What earlier replications have; None where nothing.
        hours: The estimated hours of a run; 0 if unknown.
    """

    row: Row
    column: Column
    grid: tuple[str, ...]
    runs: tuple[PlannedRun, ...]
    paper: Entry | None
    others: Entry | None
    hours: float

    @property
    def name(self) -> str:
        """Human-readable name of the cell."""
        return f"{self.row.name} | {self.column.name}"


class Experiment(_Part):
    """A table and the runs that fill it; the fields are those of the file.

    Where it names a board, its rows are entries there.
    """

    name: str
    board: str = ""
    title: str
    source: str
    measure: Measure
    data: str = ""
    speedup: bool = False
    remarks: list[str] = []
    run: Keys = {}
    columns: list[Column] = Field(min_length=1)
    rows: list[Row] = Field(min_length=1)

    @model_validator(mode="after")
    def _parts_fit(self) -> "Experiment":
        for column in self.columns:
            if (column.target or 0) > 1:
                raise ValueError(f"column {column.name!r}: give target as a share of 1")
            has_link = column.link is not None or "links" in self.run | column.run
            if self.measure == "minutes-to-target" and not has_link:
                raise ValueError(f"column {column.name!r}: minutes need a link")
        for row in self.rows:
            for key in BY_COLUMN:
                entries = getattr(row, key)
                if len(entries) not in (0, len(self.columns)):
                    raise ValueError(
                        f"{key} of row {row.name!r} has {len(entries)} entries; "
                        f"give one for each of the {len(self.columns)} columns"
                    )
        return self

    def cells(self) -> list[list[Cell]]:
        """Return the cells by row and column.

        Raises:
            ConfigError: A run has an unknown key or a value out of its range.
        """
        return [
            [self._cell(row, column, place) for place, column in enumerate(self.columns)]
            for row in self.rows
        ]

    def _cell(self, row: Row, column: Column, place: int) -> Cell:
        shared = self.run | column.run | _added_up([self.run, column.run])
        if row.central:
            known = set(map(kebab, CentralConfig.model_fields))
            shared = {key: value for key, value in shared.items() if key in known}
        keys = shared | row.run | _added_up([shared, row.run])
        kind = CentralConfig if row.central else RunConfig
        lists = [key for key, value in keys.items() if isinstance(value, list)]
        grid = tuple(key for key in lists if key != SEED)
        try:
            runs = tuple(
                plan_run(values, grid, kind, seeded=SEED in lists) for values in combinations(keys)
            )
        except ConfigError as error:
            where = f"{row.name}, {column.name}"
            raise ConfigError("experiment", self.name, f"{where}: {error}") from error
        return Cell(row, column, grid, runs, *row.entries(place))


def load(path: Path) -> Experiment:
    """Return the experiment in a file; its name is the file's.

    Raises:
        ConfigError: It is not such a table.
    """
    content = read_keys(path, "experiment")
    if name := content.pop("rows_from", None):
        other = read_keys(path.parent / name, "experiment")
        rows = [
            {key: row[key] for key in row if key not in BY_COLUMN} for row in other.get("rows", [])
        ]
        content |= {"run": other.get("run", {}), "rows": rows}
    return parse_table(path, path.stem, content)


def parse_table(path: Path, name: str, content: Keys) -> Experiment:
    """Return the experiment of a file's content.

    Raises:
        ConfigError: It is not such a table.
    """
    try:
        return Experiment.model_validate({**content, "name": name})
    except ValidationError as error:
        raise ConfigError("experiment", str(path), problems(error)) from error


def problems(error: ValidationError) -> str:
    """Return what is wrong with a file, by the places in it."""
    found = ((".".join(map(str, each["loc"])), each["msg"]) for each in error.errors())
    return "; ".join(f"{place}: {message}" if place else message for place, message in found)


def in_order(cells: list[list[Cell]]) -> list[tuple[Cell, PlannedRun]]:
    """Return every run once, with the first of its cells: all grids' first values come first.

    Among equals those that take the fewest hours come first (0 where that is not known), then the
    order is that of rows, then of columns.
    """
    found: dict[TrainingConfig, tuple[int, Cell, PlannedRun]] = {}
    for cell in (cell for row in cells for cell in row):
        for place, run in enumerate(cell.runs):
            found.setdefault(run.config, (place, cell, run))
    ordered = sorted(found.values(), key=lambda entry: (entry[0], entry[1].hours))
    return [(cell, run) for _, cell, run in ordered]


def _added_up(keys: Sequence[Keys]) -> Keys:
    """Return the merged values of keys whose values are arguments."""
    added: Keys = {}
    for name in ("strategy-args", "partition-args"):
        parts = [part[name] for part in keys if name in part]
        choices = product(*(part if isinstance(part, list) else [part] for part in parts))
        texts = [", ".join(map(Arguments.of, choice)) for choice in choices]
        if parts:
            added[name] = texts if any(isinstance(part, list) for part in parts) else texts[0]
    return added
