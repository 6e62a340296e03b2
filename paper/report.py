"""The page of all experiments' results next to the papers': a single, self-contained file."""

import base64
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from fedavg_app.budget import duration
from fedavg_app.errors import ConfigError
from paper import cells, text
from paper.board_page import show_board, write_template
from paper.boards import load_boards, standings
from paper.curves import draw_curves, panels_of
from paper.experiments import Experiment, load
from paper.records import RECORDS, Record, by_run, read_all
from paper.tables import Result, fill

HEADLINES = "headlines.toml"
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
    # Experiments with a paper's numbers come first.
    loaded = sorted(map(load, files), key=lambda table: not any(row.paper for row in table.rows))
    sections = [_section(experiment, found, results) for experiment in loaded]
    tables = {
        each["experiment"].name: (each["experiment"].measure, each["table"]) for each in sections
    }
    # A run may belong to several experiments.
    done = {run.record.path: run for section in sections for run in section["done"]}
    return write_template(
        results / "report.html",
        cells=cells,
        text=text,
        duration=duration,
        results=results,
        title=title,
        marks=MARKS,
        headlines=cells.headlines(results / HEADLINES, tables),
        sections=sections,
        boards=[
            show_board(board, standings(board, found))
            for board in load_boards(experiments.parent / "boards")
        ],
        figures=list(_figures(results)),
        time=duration(3600 * sum(run.hours for run in done.values())),
        **_origins([run.record for run in done.values()]),
    )


def _section(experiment: Experiment, found: Sequence[Record], results: Path) -> dict[str, Any]:
    """Return the template's data of an experiment."""
    table = fill(experiment, by_run(found, experiment.data))
    flat = [result for row in table for result in row]
    runs = {run.config: (result, run) for result in flat for run in result.cell.runs}
    done = {entry.run.config: entry for result in flat for entry in result.done}
    panels = panels_of(experiment)
    by = " and by ".join(label.format("MB") for label in panels.values())
    pictures = [
        {"src": _inline(path), "alt": f"{experiment.title}, {name}: accuracy by {by}", "name": name}
        for name, path in draw_curves(table, panels, results / "plots" / experiment.name).items()
    ]
    missing = [result.cell.hours for config, (result, _) in runs.items() if config not in done]
    return {
        "experiment": experiment,
        "table": table,
        "what": WHAT[experiment.measure],
        "columns": [_column([row[place] for row in table]) for place in range(len(table[0]))],
        "pictures": pictures,
        "runs": [(result, run, done.get(config)) for config, (result, run) in runs.items()],
        "done": list(done.values()),
        "time": _time_text([run.hours for run in done.values()], missing),
    }


def _time_text(spent: Sequence[float], missing: Sequence[float]) -> str:
    """Return how long the runs took, and how long the missing runs would take, if known."""
    parts = []
    if spent:
        parts.append(f"The runs took {duration(3600 * sum(spent))} in all.")
    if any(missing):
        unknown = missing.count(0)
        but = f"; for {unknown} more there is no estimate" if unknown else ""
        parts.append(f"The missing runs would take about {duration(3600 * sum(missing))}{but}.")
    return " ".join(parts)


def _column(results: Sequence[Result]) -> dict[str, Any]:
    """Return a column's name, and whether the paper or others have anything there.

    "numbers" is whether the paper has what ours can be compared with, not texts alone.
    """
    found = [result.cell for result in results]
    return {
        "name": found[0].column.name,
        "paper": any(cell.paper is not None for cell in found),
        "numbers": any(isinstance(cell.paper, float) for cell in found),
        "others": any(cell.others is not None for cell in found),
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
        pictures = [
            {"src": _inline(path.parent / name), "alt": alt}
            for name, alt in figure["pictures"].items()
        ]
        link = path.relative_to(results).as_posix()
        yield {"id": path.stem, "link": link, "data": None, **figure, "pictures": pictures}


def _origins(records: Sequence[Record]) -> dict[str, list[str]]:
    """Return when and with what the records were made, for the template."""
    versions = [", ".join(map(" ".join, record.versions.items())) for record in records]
    return {
        "dates": sorted({record.date for record in records}),
        "versions": sorted(set(versions)),
        "data": sorted({f"{record.data} ({record.fingerprint[:8]})" for record in records}),
    }
