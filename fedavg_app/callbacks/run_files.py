"""The files that a training leaves: config, history, summary and model."""

import json
import platform
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

from flwr.app import ArrayRecord

from fedavg_app.callbacks.base import Callback, TrainingRun
from fedavg_app.config import RunConfig
from fedavg_app.results.history import (
    RoundMetrics,
    TrainingResult,
    finite_json,
    virtual_times,
)
from fedavg_app.results.run_folder import (
    BEST_MODEL_FILE,
    CONFIG_FILE,
    HISTORY_FILE,
    MODEL_FILE,
    SUMMARY_FILE,
    reporting_unwritable,
    reporting_write_errors,
    save_model,
)
from tasks.data.atomic_file import replacing
from tasks.objective import Objective

# The packages whose versions the summary gives.
PACKAGES = ("flwr", "torch", "numpy", "ray")


class RunFiles(Callback):
    """A callback that writes the files of a training.

    ``config.json``, ``history.jsonl`` (a line as each round ends), ``summary.json``,
    ``model.safetensors``, the last global model, and ``best.safetensors``, that of the first round
    with the best objective (`TrainingPlan.score`); its metadata have the round and the value. A
    federated training also leaves its bytes in the form of Flower's benchmark apps. The history of
    a resumed training is cut back to the rounds that are completed.

    Args:
        run: The training.

    Raises:
        ConfigError: The folder cannot be written.
    """

    def __init__(self, run: TrainingRun) -> None:
        self._run = run
        self._seconds_before = sum(metrics.seconds for metrics in run.completed)
        self._started = time.monotonic()
        resumed = isinstance(run.config, RunConfig) and run.config.resume
        with reporting_unwritable(run.config):
            settings = run.config.model_dump(by_alias=True)
            if run.plan.objective != Objective():  # whoever reads the folder may not have the task
                settings["objective"] = str(run.plan.objective)
            self._write_json(CONFIG_FILE, settings | ({"resume": ""} if resumed else {}))
            # A folder with a summary is that of a run that has ended.
            (run.folder / SUMMARY_FILE).unlink(missing_ok=True)
            with replacing(run.folder / HISTORY_FILE) as temporary:
                temporary.write_text("".join(map(_line, run.completed)), encoding="utf-8")
            self._history = (run.folder / HISTORY_FILE).open("a", encoding="utf-8")

    def on_round_end(self, metrics: RoundMetrics, model: ArrayRecord) -> None:
        """Append a line to the history, in its file when this returns.

        Raises:
            RunError: It cannot be written.
        """
        del model
        with reporting_write_errors(self._run.folder):
            self._history.write(_line(metrics))
            self._history.flush()

    def on_train_end(self, result: TrainingResult) -> None:
        """Write the models, if there are any, the summary, and a federated training's bytes.

        Raises:
            RunError: A file cannot be written.
        """
        seconds = self._seconds_before + time.monotonic() - self._started
        with reporting_write_errors(self._run.folder):
            self._history.close()
            if result.model is not None:
                save_model(result.model, self._run.folder / MODEL_FILE)
            plan = self._run.plan
            best = plan.best(result.history)
            if result.best_model is not None and best is not None:
                about = {"round": str(best.metrics.round), plan.objective.name: repr(best.value)}
                save_model(result.best_model, self._run.folder / BEST_MODEL_FILE, about)
            self._write_json(SUMMARY_FILE, summarize(self._run, result, seconds))
            if isinstance(self._run.config, RunConfig):
                name = f"result_{self._run.folder.name}_communication.json"
                self._write_json(name, communication(result.history))

    def _write_json(self, name: str, content: Mapping[str, Any]) -> None:
        with replacing(self._run.folder / name) as temporary:
            text = json.dumps(finite_json(content), indent=2, allow_nan=False)
            temporary.write_text(text + "\n", encoding="utf-8")


def _line(metrics: RoundMetrics) -> str:
    return json.dumps(metrics.as_json(), allow_nan=False) + "\n"


def summarize(run: TrainingRun, result: TrainingResult, seconds: float) -> dict[str, Any]:
    """Return the content of ``summary.json``, a training's result in a few numbers.

    Args:
        run: The training.
        result: How it ended.
        seconds: How long it took.
    """
    history = result.history
    traffic = history[-1].total if history else {}
    objective = run.plan.objective
    best = run.plan.best(history)
    validation = best.metrics.validation_metrics if best else {}
    tested = next(filter(None, (metrics.tested for metrics in reversed(history))), {})
    passed = virtual_times(history)[-1] if history else 0.0
    counted = {
        "virtual-seconds": round(passed, 3),
        "seconds-per-example": run.plan.seconds_per_example,
    }
    own_data = {
        str(client): {"fingerprint": fingerprint, "examples": examples}
        for client, (fingerprint, examples) in sorted(run.own_data.items())
    }
    budget = run.plan.budget
    spending = {"spent": round(run.plan.spent(history), 6), "budget": str(budget)} if budget else {}
    # A server without the extra "simulation" has no Ray.
    versions = {name: version(name) for name in PACKAGES if find_spec(name)}
    summary = {
        "status": result.status,
        "rounds": history[-1].round if history else 0,
        "objective": str(objective),
        f"target-{objective.name}": run.plan.target,
        "rounds-to-target": result.rounds_to_target,
        f"best-{objective.name}": best and best.value,
        "best-round": best and best.metrics.round,
        "chosen-on": best and best.chosen_on,
        f"final-{objective.name}": best and best.final,
        **({"validation-metrics": validation} if validation else {}),
        "test-metrics": tested,
        "client-metrics": next(
            filter(None, (metrics.client_metrics for metrics in reversed(history))), {}
        ),
        "learning-rate": run.plan.learning_rate,
        **{key.replace("_", "-"): value for key, value in traffic.items()},
        **spending,
        "rejected-replies": sum(len(metrics.rejected) for metrics in history),
        "seconds": round(seconds, 3),
        **(counted if passed else {}),
        **(history[-1].privacy if history else {}),
        "data": run.data.description,
        "data-fingerprint": run.data.fingerprint,
        **({"own-data": own_data} if own_data else {}),
        "versions": {"python": platform.python_version(), **versions},
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
    total = sum(each["comm_bytes_total"] for each in rounds.values())
    return {"totals": {"total_comm_bytes": total}, "train_rounds": rounds}
