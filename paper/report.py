"""The page that shows what all experiments gave, next to the papers: one file, nothing outside."""

import base64
import os
from collections import ChainMap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from fedavg_app.cli.distribution_report import draw
from fedavg_app.config import RunConfig, with_clients
from fedavg_app.errors import ConfigError
from fedavg_app.partitioning.data_distribution import data_distribution
from fedavg_app.server.run_components import load_task
from paper.cell_text import duration, show, show_run
from paper.experiments import Experiment, load
from paper.figures import read_figures
from paper.headlines import HEADLINES, headlines, read_claims
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
    "upload-to-target": "megabytes that one participant sends until the target",
    "traffic-to-target": "megabytes that one participant sends and is sent until the target",
}
# Partitions that the page shows: 100 clients of MNIST, as in both papers.
PARTITIONS = (("iid", ""), ("shards", ""), ("classes", "classes-per-client = 2"),
              ("dirichlet", "alpha = 0.5"))  # fmt: skip


def write_report(
    experiments: Path, results: Path, output: Path, data_dir: str = "", title: str = ""
) -> None:
    """Write the page, and its pictures once more as files in results/plots/.

    The same records give the same page.

    Args:
        experiments: The folder of experiments.
        results: The folder of results; the records are in its records/<experiment>/.
        output: The HTML file.
        data_dir: A directory with MNIST's files for the pictures of partitions; empty takes what
            can be had.
        title: The page's title; empty for that of the papers, with a text about them.

    Raises:
        ConfigError: An experiment or a record cannot be read, or the page cannot be written.
        DataError: There is no MNIST in that directory.
    """
    files = sorted(experiments.glob("*.toml"))
    if not files:
        fix = "has no experiments; give a folder with TOML files"
        raise ConfigError("experiments", str(experiments), fix)
    plots = results / "plots"
    try:
        plots.mkdir(parents=True, exist_ok=True)
        output.parent.mkdir(parents=True, exist_ok=True)
        found = read_all(results / RECORDS)
        loaded = [load(path) for path in files]
        # Those next to a paper's numbers first.
        loaded.sort(key=lambda one: not any(row.paper for row in one.rows))
        sections = [_section(one, found, results, output.parent) for one in loaded]
        tables = {
            one["experiment"].name: (one["experiment"].measure, one["table"]) for one in sections
        }
        page = _template().render(
            title=title,
            marks=MARKS,
            headlines=headlines(read_claims(results / HEADLINES), tables),
            sections=sections,
            figures=[
                {
                    **figure.model_dump(),
                    "id": path.stem,
                    "link": _link(path, output.parent),
                    "src": _inline(path.with_suffix(".png")),
                }
                for path, figure in read_figures(results).items()
            ],
            partitions=_draw_partitions(plots, data_dir),
            # A run may belong to several experiments.
            time=duration(sum(ChainMap(*(one["hours"] for one in sections)).values())),
            **_origins([record for section in sections for record in section["records"]]),
        )
        with replacing(output) as temporary:
            temporary.write_text(page, encoding="utf-8")
    except OSError as error:
        fix = f"cannot write it ({error.strerror}); give a writable place"
        raise ConfigError("output", str(output), fix) from error


def _template() -> Any:
    environment = Environment(
        loader=PackageLoader("paper"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("report.html")


def _section(
    experiment: Experiment, found: Sequence[Stored], results: Path, base: Path
) -> dict[str, Any]:
    """Return what the template shows of one experiment."""
    table = fill(experiment, by_run(found, experiment.data))
    flat = [result for row in table for result in row]
    runs = {run.config: (result, run) for result in flat for run in result.cell.runs}
    done = {one.run.config: one for result in flat for one in result.done}
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
            | {"link": _link(done[config].path, base) if config in done else ""}
            for config, (result, run) in runs.items()
        ],
        "done": len(done),
        "time": _time_text(
            [one.hours for one in done.values()],
            [result.cell.hours for config, (result, _) in runs.items() if config not in done],
        ),
        "hours": {one.path: one.hours for one in done.values()},
        "records": [one.record for one in done.values()],
    }


def _time_text(spent: Sequence[float], missing: Sequence[float]) -> str:
    """Return how long the runs took, and what the missing ones would take where it is known."""
    parts = []
    if spent:
        parts.append(f"The runs took {duration(sum(spent))} in all.")
    if any(missing):
        unknown = missing.count(0)
        but = f"; of {unknown} more there is no estimate" if unknown else ""
        parts.append(f"The missing ones would take about {duration(sum(missing))}{but}.")
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


def _link(path: Path, base: Path) -> str:
    """Return the path from a folder, for a reference on the page."""
    return Path(os.path.relpath(path, base)).as_posix()


def _inline(path: Path) -> str:
    """Return a PNG file as a reference that holds the picture itself."""
    return f"data:image/png;base64,{base64.b64encode(path.read_bytes()).decode()}"


def _draw_partitions(plots: Path, data_dir: str) -> list[dict[str, str]]:
    """Draw the partitions; return what the template shows."""
    base = with_clients(RunConfig(task="mnist-2nn", data_dir=data_dir))
    data = load_task(base).dataset(base.data_options)
    pictures = []
    for scheme, arguments in PARTITIONS:
        config = base.model_copy(update={"partition": scheme, "partition_args": arguments})
        distribution = data_distribution(data, config)
        name = f"{scheme} ({arguments})" if arguments else scheme
        path = plots / f"partition-{scheme}.png"
        title = f"{distribution.total:,} examples on {base.num_clients} clients: {name}"
        draw(distribution, title, path)
        text = f"Partition {name}: examples of each client, and the classes they are of"
        pictures.append({"src": _inline(path), "alt": text})
    return pictures


def _origins(records: Sequence[Record]) -> dict[str, Any]:
    """Return when and with what the records were made, for the template."""
    return {
        "dates": sorted({record.date for record in records}),
        "versions": sorted(
            {", ".join(f"{name} {v}" for name, v in record.versions.items()) for record in records}
        ),
        "data": sorted({f"{record.data} ({record.fingerprint[:8]})" for record in records}),
    }
