"""The page of all experiments' results next to the papers': a single, self-contained file."""

import base64
import json
from collections import ChainMap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from fedavg_app.errors import ConfigError
from paper.board_page import show_board
from paper.boards import load_boards, standings
from paper.cell_text import duration, show, show_run
from paper.experiments import Experiment, load
from paper.headlines import HEADLINES, headlines
from paper.learning_curves import axes_of, draw_curves
from paper.records import RECORDS, Record, Stored, by_run, read_all
from paper.tables import Result, fill
from tasks.data.atomic_file import replacing

# A sign beside the word: the two are told apart without colours.
MARKS = {
    "better": "\N{UPWARDS ARROW}", "reproduced": "\N{CHECK MARK}", "worse": "\N{DOWNWARDS ARROW}",
    "not reached": "\N{MULTIPLICATION SIGN}", "not run": "\N{EN DASH}",
    "not comparable": "\N{ALMOST EQUAL TO}",
}  # fmt: skip
WHAT = {
    "rounds-to-target": "rounds to the target, the fewer the better",
    "best-accuracy": "best test accuracy",
    "upload-to-target": "megabytes that a participant sends until the target",
    "traffic-to-target": "megabytes that a participant sends and receives until the target",
    "minutes-to-target": "minutes over the link, with the local steps, until the target",
}


def write_report(experiments: Path, results: Path, title: str = "") -> Path:
    """Write the page, and its curves once more as files in results/plots/; return its path.

    The same records give the same page.

    Args:
        experiments: The folder of experiments; the boards are in a folder "boards" beside it.
        results: The folder of results; the records are in its records/<experiment>/.
        title: The page's title; empty for that of the papers, with a text about them.

    Raises:
        ConfigError: An experiment, a board or a record cannot be read.
    """
    files = sorted(experiments.glob("*.toml"))
    if not files:
        fix = "has no experiments; give a folder with TOML files"
        raise ConfigError("experiments", str(experiments), fix)
    (results / "plots").mkdir(parents=True, exist_ok=True)
    found = read_all(results / RECORDS)
    # Those next to a paper's numbers first.
    loaded = sorted(
        map(load, files), key=lambda experiment: not any(row.paper for row in experiment.rows)
    )
    sections = [_section(experiment, found, results) for experiment in loaded]
    tables = {
        section["experiment"].name: (section["experiment"].measure, section["table"])
        for section in sections
    }
    environment = Environment(
        loader=PackageLoader("paper"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    page = environment.get_template("report.html").render(
        title=title,
        marks=MARKS,
        headlines=headlines(results / HEADLINES, tables),
        sections=sections,
        boards=[
            show_board(board, standings(board, found))
            for board in load_boards(experiments.parent / "boards")
        ],
        figures=list(_figures(results)),
        # A run may belong to several experiments.
        time=duration(sum(ChainMap(*(section["hours"] for section in sections)).values())),
        **_origins([record for section in sections for record in section["records"]]),
    )
    output = results / "report.html"
    with replacing(output) as temporary:
        temporary.write_text(page, encoding="utf-8")
    return output


def _section(experiment: Experiment, found: Sequence[Stored], results: Path) -> dict[str, Any]:
    """Return the template's data of an experiment."""
    table = fill(experiment, by_run(found, experiment.data))
    flat = [result for row in table for result in row]
    runs = {run.config: (result, run) for result in flat for run in result.cell.runs}
    done = {entry.run.config: entry for result in flat for entry in result.done}
    pictures = []
    if done:
        for against in axes_of(experiment):
            path = results / "plots" / f"{experiment.name}-{against}.png"
            draw_curves(experiment, table, against, path)
            text = f"{experiment.title}: best accuracy so far against {against}"
            pictures.append({"src": _inline(path), "alt": text})
    return {
        "experiment": experiment,
        "table": table,
        "what": WHAT[experiment.measure],
        "columns": [_column(place, table) for place in range(len(experiment.columns))],
        "rows": [[show(experiment, result) for result in row] for row in table],
        "pictures": pictures,
        "runs": [
            show_run(experiment, result, run, done.get(config))
            | {"link": done[config].path.relative_to(results).as_posix() if config in done else ""}
            for config, (result, run) in runs.items()
        ],
        "done": len(done),
        "time": _time_text(
            [entry.hours for entry in done.values()],
            [result.cell.hours for config, (result, _) in runs.items() if config not in done],
        ),
        "hours": {entry.path: entry.hours for entry in done.values()},
        "records": [entry.record for entry in done.values()],
    }


def _time_text(spent: Sequence[float], missing: Sequence[float]) -> str:
    """Return how long the runs took, and how long the missing runs would take, if known."""
    parts = []
    if spent:
        parts.append(f"The runs took {duration(sum(spent))} in all.")
    if any(missing):
        unknown = missing.count(0)
        but = f"; for {unknown} more there is no estimate" if unknown else ""
        parts.append(f"The missing runs would take about {duration(sum(missing))}{but}.")
    return " ".join(parts)


def _column(place: int, table: Sequence[Sequence[Result]]) -> dict[str, Any]:
    """Return a column's name, and whether the paper or others have anything there.

    "numbers" is whether the paper has what ours can be compared with, not texts alone.
    """
    results = [row[place] for row in table]
    return {
        "name": results[0].cell.column.name,
        "paper": any(result.paper is not None for result in results),
        "numbers": any(isinstance(result.paper, float) for result in results),
        "others": any(result.others is not None for result in results),
    }


def _inline(path: Path) -> str:
    """Return a PNG file as a reference that holds the picture itself."""
    return f"data:image/png;base64,{base64.b64encode(path.read_bytes()).decode()}"


def _figures(results: Path) -> Iterator[dict[str, Any]]:
    """Yield the recorded figures that no table of runs gives, as the template shows them.

    Each is a file figures/<name>.json with title, source, what was found in words, and its pictures
    with texts about them.
    """
    for path in sorted((results / "figures").glob("*.json")):
        figure = json.loads(path.read_text(encoding="utf-8"))
        yield {
            "id": path.stem,
            "link": path.relative_to(results).as_posix(),
            "data": None,
            **figure,
            "pictures": [
                {"src": _inline(path.parent / name), "alt": text}
                for name, text in figure["pictures"].items()
            ],
        }


def _origins(records: Sequence[Record]) -> dict[str, Any]:
    """Return when and with what the records were made, for the template."""
    return {
        "dates": sorted({record.date for record in records}),
        "versions": sorted(
            {", ".join(f"{name} {v}" for name, v in record.versions.items()) for record in records}
        ),
        "data": sorted({f"{record.data} ({record.fingerprint[:8]})" for record in records}),
    }
