"""Enters a strategy on a board: runs the missing seeds, and prints its rank."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from fedavg_app.config import RunConfig
from fedavg_app.errors import ConfigError
from fedavg_app.server.preparation import load_data, resolve
from fedavg_app.sweep.planned_run import identity
from paper.board_page import cell, name, place, what
from paper.boards import MEASURES, METHOD, Board, standings
from paper.experiments import Column, Experiment, Keys, Row
from paper.records import RECORDS, read_all
from paper.text import seeds


def entry_keys(board: Board, strategy: str, arguments: str, words: Sequence[str]) -> Keys:
    """Return the keys of an entry, the board's defaults among them; words are "key=value".

    Raises:
        ConfigError: A word is something else.
    """
    own: Keys = {}
    for word in words:
        key, sign, value = word.partition("=")
        if not sign:
            raise ConfigError("set", word, "give key=value, such as learning-rate=0.1")
        own[key.strip()] = value.strip()
    keys = {**board.defaults, **own, "strategy": strategy, "strategy-args": arguments}
    if "local-epochs" in own and "local-steps" not in own:
        keys["local-steps"] = 0  # steps count before epochs
    return keys


def plan_entry(
    board: Board, keys: Keys, numbers: str, data_dir: Path | None
) -> tuple[RunConfig, Experiment]:
    """Return the config of an entry, and its runs, one for each seed, as an experiment.

    Raises:
        ConfigError: They cannot be used, or the data are not the board's: nothing has been run.
        DataError: There are none.
    """
    config = board.config(keys)
    task = resolve(config).task
    try:
        values = {
            **{key: [value] for key, value in keys.items()},
            "seed": [int(seed) for seed in numbers.split(",")],
        }
    except ValueError as error:
        raise ConfigError("seeds", numbers, "give numbers, such as 1,2,3") from error
    located = config.model_copy(update={"data_dir": str(data_dir or "")})
    data = load_data(located, task)
    if data.fingerprint != board.data:
        fix = f"these are not the data of {board.name} but {data.description}"
        raise ConfigError("data-dir", located.data_dir, fix)
    return config, Experiment(
        name=f"board-{board.name}", title=board.title, source="an entry",
        measure="upload-to-target", data=board.data, run=board.shared,
        columns=[Column(name=board.name)],
        # Each is a list of one value: a record is named by the keys that are lists.
        rows=[Row(name=config.strategy, run=values)],
    )  # fmt: skip


def describe_place(board: Board, config: RunConfig, results: Path) -> Iterator[str]:
    """Yield lines that say where an entry stands, from the records of the results."""
    rows = standings(board, read_all(results / RECORDS))
    method = {key: value for key, value in identity(config) if key in METHOD}
    row = next(row for row in rows if row.settings == method)
    number, highest = place(board, rows, row), f"{100 * board.targets[-1]:g} %"
    where = f"is {number} of {len(rows)}" if number.isdigit() else "has no place"
    how_many = seeds([0.0] * len(row.runs))
    yield f"{board.name}: {name(row)} {where} by the bytes up to {highest}; {how_many}"
    for target in board.targets:
        cells = (f"{what(board, kind)} {cell(row, target, kind)}" for kind in MEASURES)
        yield f"  {100 * target:g} %: {', '.join(cells)}"
