"""The command `plan`: which method to take for a task and a budget."""

import shlex
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import rich.console
import rich.table
import typer

from fedavg_app.cli.options import with_config
from fedavg_app.cli.sweep import describe
from fedavg_app.config import RunConfig, kebab, with_clients
from fedavg_app.errors import ConfigError

if TYPE_CHECKING:  # they take seconds to import
    from fedavg_app.results.finished_run import FinishedRun
    from fedavg_app.sweep.halving import Judged
    from fedavg_app.sweep.planned_run import PlannedRun

# Keys that the candidates set, or that a plan has no use for.
WITHOUT = {
    "task", "strategy", "strategy_args", "local_epochs", "local_steps", "target", "patience",
    "checkpoint_every", "checkpoint_seconds", "resume", "run_dir",
}  # fmt: skip

# What all candidates must have in common, to be compared.
SHARED = (
    "task", "seed", "objective", "validation", "budget", "num_server_rounds", "target", "patience",
)  # fmt: skip
# Where methods are compared, by `FinishedRun.chosen_on`.
JUDGED_ON = {
    "test": "the test set",
    "validation": "validation examples",
    "clients": "the clients' own tests",
}


@with_config(RunConfig, WITHOUT)
def plan(
    config: RunConfig,
    *,
    task: Annotated[str, typer.Argument(help="the learning problem, as `run --task` takes it")],
    candidates: Annotated[
        Path | None,
        typer.Option(help="methods to try, a TOML file as `sweep` takes it; by default a list"),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option("--run-dir", help="the runs go here; by default plans/TASK"),
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="runs at a time, which share the cores")] = 1,
) -> None:
    """Find the best method within a budget, from short runs of several methods.

    All methods get a ninth of the budget and of num-server-rounds, the best of them a third, and
    the best of these the whole; none is dropped in its first ten rounds. The same command continues
    after an interruption.
    """
    if not config.budget:
        fix = "give what a run may spend, as in --budget '50 MB up' or --budget '2 h on 4g'"
        raise ConfigError("budget", config.budget, fix)
    from fedavg_app.results.finished_run import read_run
    from fedavg_app.server.preparation import load_task
    from fedavg_app.sweep.grid import read_keys
    from fedavg_app.sweep.planned_run import finished_folder
    from fedavg_app.sweep.run_process import shared_launcher
    from fedavg_app.sweep.rungs import run_rungs
    from fedavg_app.training_plan import make_plan

    # A file of `--config` may say more than options can.
    fixed = {"task": task, "target": "none", "patience": 0}
    config = with_clients(config).model_copy(update=fixed)
    keys = config.model_dump(by_alias=True, exclude=WITHOUT) | {"task": task, "target": "none"}
    planned = _planned(keys, read_keys(candidates, "candidates") if candidates else None)
    for name, run in product(SHARED, planned):
        if getattr(run.config, name) != getattr(config, name):
            raise ConfigError("candidates", str(candidates), f"leave {kebab(name)} out of the file")
    training = make_plan(config, load_task(config))
    folder = folder or Path("plans") / task.replace(":", ".")
    with shared_launcher(None, jobs) as launch:
        name, objective = f"plan for {task}", training.objective
        judged = run_rungs(name, planned, objective, folder, launch, jobs, describe)
    runs = [finished_folder(folder / entry.candidate.slug) for entry in judged]
    _show(judged, [read_run(path) for path in runs if path is not None], config)


def _planned(keys: dict[str, Any], chosen: dict[str, Any] | None) -> "list[PlannedRun]":
    """Return the runs of the candidates; of the default candidates those that fit the settings."""
    from fedavg_app.sweep.grid import planned_runs
    from fedavg_app.sweep.rungs import CANDIDATES

    if chosen is not None:
        return planned_runs(keys | chosen)
    fitting, reasons = list[dict[str, Any]](), dict[str, str]()
    for variant in CANDIDATES:
        try:
            planned_runs(keys | {"variants": [variant]})
            fitting.append(variant)
        except ConfigError as error:
            reasons[variant["strategy"]] = str(error)
    if not fitting:
        raise ConfigError("task", keys["task"], "; ".join(set(reasons.values())))
    for strategy, reason in reasons.items():
        typer.echo(f"left out: {strategy}: {reason}")
    return planned_runs(keys | {"variants": fitting})


def _show(
    judged: "Sequence[Judged[PlannedRun]]", runs: "Sequence[FinishedRun]", config: RunConfig
) -> None:
    """Print the evidence and the choice."""
    from fedavg_app.results.finished_run import FINISHED
    from fedavg_app.results.history import best_of
    from fedavg_app.sweep.planned_run import arguments
    from fedavg_app.sweep.rungs import limits_of
    from fedavg_app.training_plan import spent

    objective, limits = runs[0].objective, limits_of(config.model_dump(by_alias=True))
    table = rich.table.Table(box=None, pad_edge=False)
    extra = [limits.budget.kind] if limits.budget.kind not in ("MB up", "MB down") else []
    for heading in ("share", objective.name, *extra, "MB up", "MB down", "rounds"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("method", overflow="fold")
    for entry, run in zip(judged, runs, strict=True):
        shown = "-" if entry.reached.value is None else objective.shown(entry.reached.value)
        last = run.history[-1]
        table.add_row(
            str(entry.share),
            shown if run.status == FINISHED else run.status,
            *(f"{spent(limits.budget, run.history, limits.num_clients):.4g}" for _ in extra),
            *(f"{last.total[key] / 1e6:.4g}" for key in ("bytes_up", "bytes_down")),
            str(last.round),
            entry.candidate.name,
        )
    console = rich.console.Console(highlight=False, markup=False)
    on = " or ".join(dict.fromkeys(JUDGED_ON[run.chosen_on] for run in runs))
    console.print(f"best {objective.name} on {on} within each method's share of the budget:")
    console.print(table)
    best = judged[0]
    if best.reached.value is None or runs[0].status != FINISHED:
        fix = "no method finished a round within it; give more, or other methods or rates"
        raise ConfigError("budget", config.budget, fix)
    words = shlex.join(arguments(best.candidate.config, {"run_dir"}))
    where = f"{limits.budget}{f' on {config.links}' if config.links else ''}"
    value = objective.shown(best.reached.value)
    chosen = best_of(runs[0].history[1:], objective)
    if runs[0].chosen_on == "validation" and chosen:
        value += f" on validation examples, {objective.shown(chosen.value)} on the test set,"
    typer.echo(
        f"take {best.candidate.name}: {objective.name} {value} within {where} and "
        f"{limits.rounds} rounds; its run is {runs[0].folder}\n"
        f"the command: fedavg {words}\n"
        "each method was run with one seed and one learning rate"
    )
