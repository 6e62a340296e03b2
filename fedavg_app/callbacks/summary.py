"""The content of ``summary.json``, and of the file of bytes that Flower's benchmark apps write."""

import platform
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from fedavg_app.callbacks.base import TrainingRun
from fedavg_app.results.metrics import RoundMetrics, TrainingResult, virtual_times
from fedavg_app.results.rounds_to_target import accuracy_curve, best_point

PACKAGES = ("flwr", "torch", "numpy", "ray")


def summarize(run: TrainingRun, result: TrainingResult, seconds: float) -> dict[str, Any]:
    """Return a training's result in a few numbers.

    Args:
        run: The training.
        result: How it ended.
        seconds: How long it took.
    """
    history = result.history
    curve = accuracy_curve(history)
    traffic = history[-1].total if history else {}
    best_round, best = best_point(curve) or (None, None)
    summary = {
        "status": result.status,
        "rounds": history[-1].round if history else 0,
        "target-accuracy": run.plan.target_accuracy,
        "rounds-to-target": result.rounds_to_target,
        "best-accuracy": best,
        "best-round": best_round,
        "final-accuracy": curve[-1][1] if curve else None,
        "client-metrics": next(
            filter(None, (metrics.client_metrics for metrics in reversed(history))), {}
        ),
        "learning-rate": run.plan.learning_rate,
        **{key.replace("_", "-"): value for key, value in traffic.items()},
        "rejected-replies": sum(len(metrics.rejected) for metrics in history),
        "seconds": round(seconds, 3),
        **_virtual(run, history),
        **(history[-1].privacy if history else {}),
        "data": run.data.description,
        "data-fingerprint": run.data.fingerprint,
        **_own_data(run),
        "versions": {"python": platform.python_version(), **_versions()},
    }
    if result.error is not None:
        known = isinstance(result.error, Exception)
        summary["reason"] = str(result.error) if known else "interrupted"
    return summary


def communication(history: Sequence[RoundMetrics]) -> dict[str, Any]:
    """Return the bytes of every round of training, in the form of Flower's benchmark apps."""
    rounds = {
        str(metrics.round): {
            "comm_bytes_total": metrics.bytes_down + metrics.bytes_up,
            "round_wall_clock_sec": metrics.seconds,
        }
        for metrics in history
        if metrics.round
    }
    total = sum(one["comm_bytes_total"] for one in rounds.values())
    return {"totals": {"total_comm_bytes": total}, "train_rounds": rounds}


def _virtual(run: TrainingRun, history: Sequence[RoundMetrics]) -> dict[str, float]:
    """Return what the virtual clock has counted; nothing without one."""
    if not history or not (passed := virtual_times(history)[-1]):
        return {}
    return {
        "virtual-seconds": round(passed, 3),
        "seconds-per-example": run.plan.seconds_per_example,
    }


def _own_data(run: TrainingRun) -> dict[str, Any]:
    """Return what the clients that have data of their own said of these; nothing without any."""
    own = {
        str(client): {"fingerprint": fingerprint, "examples": examples}
        for client, (fingerprint, examples) in sorted(run.own_data.items())
    }
    return {"own-data": own} if own else {}


def _versions() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:  # a server without the extra "simulation" has no Ray
            continue
    return found
