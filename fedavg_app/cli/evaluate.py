"""The command `evaluate`: tests the model that a run has saved."""

from pathlib import Path
from typing import Annotated

import typer

from fedavg_app.config import RunConfig, parse_saved


def evaluate(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="the run's folder")],
    *,
    best: Annotated[
        bool, typer.Option("--best", help="the run's best model, not the last")
    ] = False,
    data_dir: Annotated[
        str, typer.Option(help="the data set's canonical files", show_default="as in the run")
    ] = "",
) -> None:
    """Test a run's saved model: loss and metrics."""
    from fedavg_app.results.finished_run import read_config, read_summary, reading
    from fedavg_app.results.run_folder import BEST_MODEL_FILE, MODEL_FILE, load_model
    from fedavg_app.server.global_evaluation import CentralEvaluation
    from fedavg_app.server.preparation import load_task
    from tasks.model_arrays import state_of
    from tasks.objective import show_metric

    files = {"data-dir": data_dir, "data-source": "auto"} if data_dir else {}
    config = parse_saved({**read_config(folder), **files, "device": "auto"})
    task = load_task(config)
    names = state_of(task.model())
    with reading(folder, BEST_MODEL_FILE if best else MODEL_FILE) as path:
        model = load_model(path, names)
    data = task.dataset(config.data_options)
    typer.echo(f"data: {data.description}")
    trained_on = read_summary(folder)
    if trained_on.get("data-fingerprint", data.fingerprint) != data.fingerprint:
        typer.echo(f"these are not the data of the run: {trained_on.get('data')}", err=True)
    if isinstance(config, RunConfig) and config.local_arrays:
        text = f"local-arrays = {config.local_arrays!r}: each client has its own values of these; "
        typer.echo(f"{text}the saved model has the initial values", err=True)
    scores = CentralEvaluation(task, data, config)(model)
    found = ", ".join(
        f"{name} {show_metric(name, value)}" for name, value in scores.metrics.items()
    )
    typer.echo(f"{path}: test {found}{', ' * bool(found)}loss {scores.loss:.4f}")
