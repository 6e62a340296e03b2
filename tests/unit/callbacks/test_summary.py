from dataclasses import replace

import pytest

from fedavg_app.callbacks import summary
from fedavg_app.callbacks.summary import summarize
from fedavg_app.errors import DivergedError, NoRepliesError
from fedavg_app.results.metrics import TrainingResult
from tests.support.training_runs import MODEL, history, training_run

ROUNDS = history([0.1, 0.5, None, 0.4])


def test_summary_has_best_and_final_accuracy_and_the_traffic():
    rounds = [
        *ROUNDS[:2],
        replace(ROUNDS[2], client_metrics={"accuracy": 0.3}, rejected={5: "NaN", 6: "NaN"}),
        replace(ROUNDS[3], rejected={5: "NaN"}),
    ]
    run = training_run(target_accuracy=0.3, learning_rate=0.2)
    found = summarize(run, TrainingResult(rounds, MODEL, 0.5), 12.3456)
    assert found.pop("versions").keys() >= {"python", "flwr", "torch", "numpy", "ray"}
    assert found == {
        "status": "finished",
        "rounds": 3,
        "target-accuracy": 0.3,
        "rounds-to-target": 0.5,
        "best-accuracy": 0.5,
        "best-round": 1,
        "final-accuracy": 0.4,
        "client-metrics": {"accuracy": 0.3},
        "learning-rate": 0.2,
        "bytes-down": 3_000_000,
        "bytes-up": 1_500_000,
        "theory-bits-down": 0.0,
        "theory-bits-up": 0.0,
        "rejected-replies": 3,
        "seconds": 12.346,
        "data": "made up",
        "data-fingerprint": run.data.fingerprint,
    }


def test_summary_of_a_training_without_a_round_has_no_accuracy():
    found = summarize(training_run(), TrainingResult([], error=KeyboardInterrupt()), 0.0)
    assert (found["rounds"], found["best-accuracy"], found["final-accuracy"]) == (0, None, None)


@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [
        (DivergedError("all NaN"), "diverged", "all NaN"),
        (NoRepliesError("no usable reply"), "no-replies", "no usable reply"),
        (ZeroDivisionError("division by zero"), "failed", "division by zero"),
        (KeyboardInterrupt(), "interrupted", "interrupted"),
        (SystemExit(143), "interrupted", "interrupted"),
    ],
)
def test_summary_of_a_training_that_failed_has_status_and_reason(error, status, reason):
    found = summarize(training_run(), TrainingResult(ROUNDS, error=error), 0.0)
    assert (found["status"], found["reason"]) == (status, reason)
    assert found["rounds"] == 3


def test_package_that_is_not_installed_has_no_version(monkeypatch):
    monkeypatch.setattr(summary, "PACKAGES", ("numpy", "no-such-package"))
    found = summarize(training_run(), TrainingResult(ROUNDS, MODEL), 0.0)
    assert found["versions"].keys() == {"python", "numpy"}
