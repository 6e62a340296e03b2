"""A run in a few words and numbers: before it starts, when it has ended, and as a file."""

import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console

from fedavg_app.config import TrainingConfig
from fedavg_app.history import RoundRecord, accuracy_curve
from fedavg_app.plan import Plan
from fedavg_app.rounds import Outcome
from tasks.base import Task
from tasks.data.store import Dataset


def summarise(
    plan: Plan,
    data: Dataset,
    records: list[RoundRecord],
    outcome: Outcome | None,
    seconds: float,
) -> dict[str, Any]:
    """Return the run in a few numbers, for ``summary.json``."""
    curve = accuracy_curve(records)
    traffic = records[-1].total if records else {}
    best_round, best = max(curve, key=lambda point: point[1], default=(None, None))
    return {
        "status": "finished",
        "rounds": records[-1].round if records else 0,
        "target-accuracy": plan.target_accuracy,
        "rounds-to-target": outcome.rounds_to_target if outcome else None,
        "best-accuracy": best,
        "best-round": best_round,
        "final-accuracy": curve[-1][1] if curve else None,
        "client-metrics": next(filter(None, (r.client_metrics for r in reversed(records))), {}),
        "learning-rate": plan.learning_rate,
        **{key.replace("_", "-"): value for key, value in traffic.items()},
        "rejected-replies": sum(len(record.rejected) for record in records),
        "seconds": round(seconds, 3),
        "data": data.description,
        "data-fingerprint": data.fingerprint,
        "versions": {
            "python": platform.python_version(),
            **{name: version(name) for name in ("flwr", "torch", "numpy", "ray")},
        },
    }


def describe(
    console: Console,
    config: TrainingConfig,
    task: Task,
    plan: Plan,
    data: Dataset,
    folder: Path,
) -> None:
    """Say what is about to run, on which data, and where the results go."""
    batch = config.batch_size or "all"
    target = plan.target_accuracy or "none"
    console.print(
        f"{config.method} on {task.name}: {config.setting}, B = {batch}, "
        f"learning rate {plan.learning_rate:g}, target {target}, seed {config.seed}"
    )
    console.print(f"data: {data.description}")
    console.print(f"results: {folder}")


def report(console: Console, plan: Plan, outcome: Outcome, folder: Path) -> None:
    """Say how the run ended."""
    curve = accuracy_curve(outcome.records)
    best_round, best = max(curve, key=lambda point: point[1])
    if plan.target_accuracy is None:
        reached = "no target"
    elif outcome.rounds_to_target is None:
        reached = f"target {plan.target_accuracy:g} not reached in {plan.num_rounds} rounds"
    else:
        reached = f"{outcome.rounds_to_target:.1f} rounds to {plan.target_accuracy:g}"
    console.print(f"done: best accuracy {best:.4f} in round {best_round}; {reached}")
    console.print(f"results: {folder}")
