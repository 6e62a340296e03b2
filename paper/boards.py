"""Boards: methods side by side on one task and split, by the bytes to fixed targets.

docs/leaderboard.md has the keys of a board's file in paper/boards/, and what is counted.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from fedavg_app.config import RunConfig, kebab, parse_config, with_clients
from fedavg_app.errors import ConfigError
from fedavg_app.links import LinkName
from fedavg_app.results.comparison_names import SEED
from fedavg_app.server.preparation import load_task, resolve
from fedavg_app.sweep.grid import read_keys
from fedavg_app.sweep.planned_run import Identity, settings
from fedavg_app.training_plan import objective_of
from paper.experiments import (
    Column,
    Experiment,
    Keys,
    Measure,
    in_order,
    load,
    parse_table,
    problems,
)
from paper.records import Record
from paper.tables import compare_records, measured
from tasks.objective import ACCURACY, Objective
from tasks.training.training_settings import LocalWork

# In these keys the methods of a board may differ; in all others its entries are alike.
METHOD = (
    "strategy", "strategy-args", "learning-rate", "learning-rate-decay", "client-mods",
    *(kebab(name) for name in LocalWork.model_fields if name != "seed"),
)  # fmt: skip
# The keys that say how often a run is tested and when it ends.
LIMIT, TESTS, TARGET = "num-server-rounds", "evaluate-every", "target"
# The data are compared by their fingerprint, wherever they are from.
NOT_SHARED = {*METHOD, LIMIT, TESTS, TARGET, "seed", "data-source"}
MEASURES: tuple[Measure, ...] = ("upload-to-target", "traffic-to-target", "minutes-to-target")


class Board(BaseModel):
    """A board; the fields are those of its file.

    Attributes:
        name: The file's.
        data: The fingerprint of the data set.
        targets: Test accuracies, or of the task's objective; each better than the one before.
        link: What the minutes are on.
        run: The keys that all entries share.
        defaults: Default keys of a new entry.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    title: str
    data: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    targets: Annotated[list[Annotated[float, Field(gt=0)]], Field(min_length=1)]
    link: LinkName = "4g"
    run: Keys
    defaults: Keys = {}

    @model_validator(mode="after")
    def _entries_choose(self) -> Self:
        if chosen := {*METHOD, LIMIT, TESTS, "seed"} & self.run.keys():
            raise ValueError(f"run.{min(chosen)}: entries choose it; put it into defaults")
        return self

    def config(self, keys: Keys) -> RunConfig:
        """Return the config of an entry.

        Args:
            keys: What it says itself.

        Raises:
            ConfigError: A key is the board's, unknown, or has a value that cannot be used.
        """
        self.refuse_shared(keys)
        return with_clients(parse_config({**self.shared, **keys}))

    def refuse_shared(self, keys: Keys) -> None:
        """Check that an entry may choose these keys.

        Raises:
            ConfigError: All entries share one.
        """
        fixed = set(map(kebab, RunConfig.model_fields)) - {*METHOD, LIMIT, TESTS}
        for key in fixed.intersection(keys):
            fix = f"all entries of {self.name} share it; leave it out"
            raise ConfigError(key, keys[key], fix)

    @cached_property
    def objective(self) -> Objective:
        """What the targets are of, the task's."""
        config = self.config({})
        return objective_of(config, load_task(config))

    @property
    def shared(self) -> Keys:
        """The keys that all entries share, with the target at which a run ends."""
        return {TARGET: self.targets[-1], **self.run}


@dataclass(frozen=True)
class Row:
    """A method on a board.

    Attributes:
        settings: Its keys and those that the board's entries share.
        runs: Its runs, one per seed.
        scores: By target and measure what each of the runs took; None if it did not reach the
            target. No values at all if the method does not have the measure.
    """

    settings: dict[str, Any]
    runs: tuple[Record, ...]
    scores: dict[tuple[float, Measure], tuple[float | None, ...]]

    def mean(self, target: float, kind: Measure) -> float | None:
        """Return the mean over the seeds; None unless all of them arrived."""
        values = self.scores[target, kind]
        arrived = [value for value in values if value is not None]
        return float(np.mean(arrived)) if arrived and len(arrived) == len(values) else None


def load_board(folder: Path, name: str) -> Board:
    """Return the board of this name.

    Raises:
        ConfigError: There is none, or its file is not that of a board.
    """
    path = folder / f"{name}.toml"
    if not path.is_file():
        known = ", ".join(sorted(path.stem for path in folder.glob("*.toml"))) or "none"
        raise ConfigError("board", name, f"there is no such board in {folder}; known: {known}")
    content = {**read_keys(path, "board"), "name": name}
    try:
        board = Board.model_validate(content)
        board.config(board.defaults)
        if board.targets != sorted(
            set(board.targets), reverse=not board.objective.higher_is_better
        ):
            fix = f"give each once, each better than the one before ({board.objective})"
            raise ConfigError("targets", board.targets, fix)
        if board.objective.name == ACCURACY and max(board.targets) > 1:
            raise ConfigError("targets", board.targets, "give accuracies, as shares of 1")
    except (ValidationError, ConfigError) as error:
        text = problems(error) if isinstance(error, ValidationError) else str(error)
        raise ConfigError("board", str(path), text) from error
    return board


def load_boards(folder: Path) -> list[Board]:
    """Return all boards in a folder, by name; none if it does not exist."""
    return [load_board(folder, path.stem) for path in sorted(folder.glob("*.toml"))]


def load_table(path: Path, folder: Path) -> Experiment:
    """Return the experiment in a file, or its entries on a board of a folder.

    Raises:
        ConfigError: It is neither, or an entry has a key that all entries of the board share, or a
            value that cannot be used.
    """
    content = read_keys(path, "experiment")
    if "board" not in content:
        return load(path)
    board = load_board(folder, content["board"])
    for row in [content, *content.get("rows", [])]:
        keys = row.setdefault("run", {})
        board.refuse_shared({key: keys[key] for key in keys if key != SEED})
        if "local-epochs" in keys:
            keys.setdefault("local-steps", 0)  # steps count before epochs
    defaults = {SEED: [1, 2, 3], **board.defaults, **content["run"]}
    table = parse_table(path, f"board-{board.name}", {
        "title": board.title, "source": "entries", "measure": MEASURES[0], "data": board.data,
        "columns": [{"name": board.name}], **content, "run": {**board.shared, **defaults},
    })  # fmt: skip
    for _, run in in_order(table.cells()):
        assert isinstance(run.config, RunConfig)
        resolve(run.config)
    return table


def standings(board: Board, records: Iterable[Record]) -> list[Row]:
    """Return the board's rows: the row that sends least up to the highest target comes first.

    Rows that do not reach it with all seeds follow, by the lower targets.
    """
    shared = settings(board.config({}))
    found: dict[Identity, list[Record]] = {}
    for entry in records:
        own = dict(entry.identity)
        if (
            entry.fingerprint == board.data
            and own.keys() == shared.keys()
            and all(own[key] == shared[key] for key in own.keys() - NOT_SHARED)
            and (own[TARGET] == shared[TARGET] or _is_beyond(board, own[TARGET]))
        ):
            key = frozenset((name, own[name]) for name in METHOD)
            found.setdefault(key, []).append(entry)
    rows = [_row(board, dict(key), _one_a_seed(board, runs)) for key, runs in found.items()]

    def order(row: Row) -> tuple[list[tuple[bool, float]], str]:
        means = [row.mean(target, "upload-to-target") for target in reversed(board.targets)]
        return [(mean is None, mean or 0.0) for mean in means], repr(sorted(row.settings.items()))

    return sorted(rows, key=order)


def _is_beyond(board: Board, target: float | str) -> bool:
    return not isinstance(target, str) and board.objective.is_reached(target, board.targets[-1])


def _row(board: Board, method: dict[str, Any], runs: Sequence[Record]) -> Row:
    # The time of epochs and of single gradients is not known (`paper.tables.course_of`).
    # Nor that of several exchanges a round.
    untimed = method["strategy"] in ("fedsgd", "secure-sum")
    timed = method["local-steps"] and method["batch-size"] and not untimed
    scores = {}
    for target in board.targets:
        column = Column(name=board.name, target=target, link=board.link)
        compared = compare_records(runs, column)
        for kind in MEASURES:
            own = measured(compared, kind)
            has_it = timed or kind != "minutes-to-target"
            scores[target, kind] = tuple(own[str(run.path)] for run in runs) if has_it else ()
    return Row(method, tuple(runs), scores)


def _one_a_seed(board: Board, runs: Sequence[Record]) -> list[Record]:
    """Return the runs of a method that can be combined, one per seed.

    Runs with fewer rounds than others count only if all of them reached the highest target, so that
    their limit did not matter. Of several runs of a seed, the most often tested counts.
    """
    found = [(dict(entry.identity), entry) for entry in runs]
    longest = max(own[LIMIT] for own, _ in found)
    column = Column(name=board.name, target=board.targets[-1])
    arrived = measured(compare_records(runs, column), "rounds-to-target")
    short = {
        own[LIMIT] for own, entry in found
        if own[LIMIT] < longest and arrived[str(entry.path)] is None
    }  # fmt: skip
    counted = [(own["seed"], own[TESTS], own[LIMIT], entry) for own, entry in found
               if own[LIMIT] not in short]  # fmt: skip
    # The last of a seed counts: the most often tested, and of these the longest.
    counted.sort(key=lambda run: (run[0], -run[1], run[2]))
    return list({seed: entry for seed, _, _, entry in counted}.values())
