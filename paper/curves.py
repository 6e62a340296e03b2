"""An experiment's learning curves by `fedavg compare`: a figure for every column."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from fedavg_app.cli.comparison import Comparison
from fedavg_app.cli.comparison_figure import draw_comparison
from fedavg_app.cli.options import Panel
from fedavg_app.config import RunConfig, TrainingConfig, parse_saved
from fedavg_app.results.comparison_names import Name
from paper.experiments import Experiment
from paper.tables import Result, compare_records
from tasks.objective import Objective

WIDTH, WIDTH_OF_A_PANEL, DPI = 6.6, 2.9, 180  # in inches, at least
ITERATION = "iteration"
# Strategies whose clients send as many values as the model has, every round.
DENSE = ("fedavg", "fedsgd")
UP, BOTH = "{} sent by a participant", "{} sent and received by it"


def panels_of(experiment: Experiment) -> dict[Panel, str]:
    """Return what a table's curves are drawn against, with labels: rounds or iterations, and bytes.

    Iterations where all runs have a number of local steps, as the STC paper counts: a round with n
    local steps is n iterations. Else no bytes where all runs train one task and send whole models
    or gradients: the bytes of a round are the same in all, and so are the curves. Time alone where
    that is measured.
    """
    if experiment.measure == "minutes-to-target":
        return {Panel.LINK: "{}"}
    planned = [run.config for row in experiment.cells() for cell in row for run in cell.runs]
    federated = [config for config in planned if isinstance(config, RunConfig)]
    in_steps = all(map(_local_steps, planned))
    dense = all(config.strategy in DENSE for config in federated)
    one_task = len({config.task for config in federated}) == 1
    panels = {Panel.ROUND: ITERATION if in_steps else "round"}
    if in_steps or not (dense and one_task):
        panels |= {Panel.UP: UP}
        panels |= {Panel.BOTH: BOTH} if experiment.measure == "traffic-to-target" else {}
    return panels


def draw_curves(
    table: Sequence[Sequence[Result]], panels: Mapping[Panel, str], stem: Path
) -> dict[str, Path]:
    """Write the curves of the runs that each cell shows: best accuracies so far.

    Args:
        table: An experiment's results by row and column.
        panels: Of `panels_of`.
        stem: The files' path without the column's number and ".png".

    Returns:
        The file of each column in which anything was run, by its name.
    """
    columns = [column for column in zip(*table, strict=True) if any(each.best for each in column)]
    names = [Name(row[0].cell.row.name) for row in table]
    compared = [_compare(column, in_steps=ITERATION in panels.values()) for column in columns]
    # Up to three times the errors that a target leaves: that is where the curves differ.
    targets = [each.target for each in compared if each.target]
    floor = max([0.0, *(1 - 3 * (1 - target) for target in targets)])
    top = max([target + (1 - target) / 4 for target in targets], default=1.0)
    files = {}
    for number, (column, own) in enumerate(zip(columns, compared, strict=True), 1):
        path = stem.with_name(f"{stem.name}-{number}.png")
        width = max(WIDTH, len(panels) * WIDTH_OF_A_PANEL)
        own = replace(own, names=names)
        draw_comparison([own], panels, path, width, (floor, top), log=True, dpi=DPI)
        files[column[0].cell.column.name] = path
    return files


def _compare(results: Sequence[Result], *, in_steps: bool) -> Comparison:
    """Return a column's best runs side by side, in iterations if that is asked for."""
    best = [(result.cell.row.name, run.record) for result in results for run in result.best]
    labels, records = [name for name, _ in best], [record for _, record in best]
    compared = compare_records(records, results[0].cell.column, labels)
    steps = [_local_steps(parse_saved(run.config)) if in_steps else 1 for run in compared.runs]
    courses = [
        own.assign(round=own["round"] * number, value=own["value"].cummax())
        for own, number in zip(compared.courses, steps, strict=True)
    ]
    return replace(compared, courses=courses, objective=Objective("accuracy, best so far"))


def _local_steps(config: TrainingConfig) -> int:
    """Return a run's local steps a round, 0 if it counts epochs."""
    return config.local_steps if isinstance(config, RunConfig) else 0
