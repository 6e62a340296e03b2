"""The command `show`: a run's settings and results."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.filesize import decimal
from rich.table import Table

from fedavg_app.budget import duration
from fedavg_app.cli.client_statistics import SHOWN, last_test
from fedavg_app.config import CentralConfig, RunConfig, with_clients
from fedavg_app.results.finished_run import FinishedRun, read_run
from fedavg_app.results.history import RoundMetrics, statistic, virtual_times
from tasks.objective import LOSS, show_metric

MOST_ROUNDS = 10


def show(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="the run's folder")],
) -> None:
    """Show a run: its settings, how it ended, some of its rounds, and whose replies were rejected.

    The settings are those that are not the defaults. Bytes are summed over all clients.
    """
    run = read_run(folder)
    console = Console(highlight=False, markup=False)
    for line in (*_settings(run), *_result(run)):
        console.print(line, soft_wrap=True)
    if run.history:
        console.print(_rounds(run))
    if rejected := sum(len(record.rejected) for record in run.history):
        asked = sum(record.participants for record in run.history)
        console.print(
            _rejected(run.history, f"rejected replies: {rejected}; training messages sent: {asked}")
        )


def _settings(run: FinishedRun) -> Iterator[str]:
    federated = "strategy" in run.config
    defaults = (with_clients(RunConfig()) if federated else CentralConfig()).model_dump(
        by_alias=True
    )
    yield f"{run.folder}{'' if federated else ' (central)'}"
    for key, value in run.config.items():
        if value != defaults.get(key) or key in ("task", "strategy", "seed"):
            yield f"  {key} = {value!r}"
    if run.config.get("learning-rate") == "auto" and "learning-rate" in run.summary:
        yield f"  learning-rate: auto was {run.summary['learning-rate']:g}"
    if "data" in run.summary:
        yield f"data: {run.summary['data']}"


def _result(run: FinishedRun) -> Iterator[str]:
    history, objective = run.history, run.objective
    reason = f": {run.summary['reason']}" if "reason" in run.summary else ""
    if not history:
        yield f"{run.status}, without a round{reason}"
        return
    seconds = run.summary.get("seconds", sum(record.seconds for record in history))
    yield f"{run.status} after round {history[-1].round} and {duration(seconds)}{reason}"
    if best := run.best:
        whose = " (the clients' own)" if run.on_clients else ""
        shown = [objective.shown(value) for value in (best.value, best.final)]
        by = best.metrics.validation_metrics.get(objective.name)
        where = f"round {best.metrics.round}"
        if by is not None:
            where += f", the best on validation examples ({objective.shown(by)})"
        yield f"{objective.name}{whose}: best {shown[0]} in {where}, final {shown[1]}"
    if test := last_test(run):
        record, values = test
        key = objective.name + ("" if objective.name == LOSS else "-mean")
        of = record.partial.get(f"client_metrics.{key}", f"{len(values)} clients")
        higher = objective.higher_is_better
        found = {name: statistic(values, name, higher_is_better=higher) for name in SHOWN}
        shown = [f"{name} {objective.shown(value)}" for name, value in found.items()]
        yield f"{objective.name} of {of} in round {record.round}: {', '.join(shown)}"
    target = run.summary.get(f"target-{objective.name}")
    if target is not None:
        rounds = run.summary["rounds-to-target"]
        reached = "not reached" if rounds is None else f"reached after {rounds:.1f} rounds"
        yield f"target {objective.name} {target:g}: {reached}"
    total = history[-1].total
    if any(total.values()):
        yield ", ".join(
            f"{which}: {decimal(int(total[f'bytes_{which}']))}"
            for which in ("up", "down")
            if f"bytes_{which}" in total
        )
    if passed := virtual_times(history)[-1]:
        yield f"virtual time: {duration(passed)}"
    for name, value in history[-1].privacy.items():
        yield f"{name}: {value:g}"
    if lost := sum(len(record.lost_states) for record in history):
        yield f"clients' states lost with a worker: {lost}"


def _rounds(run: FinishedRun) -> Table:
    """Return the first and the last tested round, and some between."""
    tested = [
        record for record in run.history if record.tested or record.client_metrics
    ] or run.history
    step = max((len(tested) - 1) / (MOST_ROUNDS - 1), 1)
    chosen = [tested[round(at * step)] for at in range(min(len(tested), MOST_ROUNDS))]
    metrics = dict.fromkeys(name for record in chosen for name in record.tested)
    validated = [run.objective.name] if any(record.validation_metrics for record in chosen) else []
    names = [*(f"test {name}" for name in metrics), *(f"validation {name}" for name in validated)]
    names = ["round", *names, "train loss", "up", "down"]
    table = Table(box=None, pad_edge=False)
    for name in names:
        table.add_column(name, justify="right")
    for record in chosen:
        values = [
            *((name, record.tested.get(name)) for name in metrics),
            *((name, record.validation_metrics.get(name)) for name in validated),
            ("loss", record.train_loss),
        ]
        shown = ["-" if value is None else show_metric(name, value) for name, value in values]
        sent = [decimal(int(record.total.get(f"bytes_{which}", 0))) for which in ("up", "down")]
        table.add_row(str(record.round), *shown, *sent)
    return table


def _rejected(history: Sequence[RoundMetrics], title: str) -> Table:
    """Return a row for every reason, with the nodes that it was given to and how often."""
    nodes: dict[str, Counter[int]] = defaultdict(Counter)
    rounds: dict[str, list[int]] = defaultdict(list)
    for record in history:
        for node, reason in record.rejected.items():
            nodes[reason][node] += 1
            rounds[reason].append(record.round)
    table = Table("replies", "rounds", "why", "nodes, and how often each", title=title)
    table.title_justify = "left"
    for reason, counts in sorted(nodes.items(), key=lambda item: -item[1].total()):
        first, last = rounds[reason][0], rounds[reason][-1]
        span = str(first) if first == last else f"{first} to {last}"
        who = ", ".join(f"{node}: {number}" for node, number in counts.most_common())
        table.add_row(str(counts.total()), span, reason, who)
    return table
