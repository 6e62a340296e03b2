import io
from dataclasses import replace

import pytest
import rich.console

from fedavg_app.callbacks import console
from fedavg_app.callbacks.console import Console
from fedavg_app.results.history import RoundMetrics, TrainingResult
from tests.support.training_runs import MODEL, training_run

HISTORY = [
    RoundMetrics(0, accuracy=0.1, test_loss=2.3),
    RoundMetrics(
        1, accuracy=0.5, test_loss=1.25, train_loss=1.5, bytes_down=1_000_000, bytes_up=500_000
    ),
    RoundMetrics(
        2, accuracy=0.4, test_loss=1.1, bytes_down=1_000_000, bytes_up=500_000, rejected={5: "NaN"}
    ),
]


@pytest.fixture
def every_round(monkeypatch):
    """Print a plain line for every round, however soon it comes."""
    monkeypatch.setattr(console, "PLAIN_SECONDS", 0.0)


def printed(run, history, result=None, terminal=False):
    """Return what is printed of a training."""
    stream = io.StringIO()
    output = rich.console.Console(
        file=stream, force_terminal=terminal, width=80 if terminal else 160, soft_wrap=not terminal
    )
    callback = Console(run, output)
    for metrics in history:
        callback.on_round_end(metrics, MODEL)
    callback.on_train_end(result or TrainingResult(list(history), MODEL))
    return stream.getvalue()


def rounds_printed(text):
    return [line for line in text.splitlines() if line.startswith("round ")]


def test_setting_is_printed_first(tmp_path):
    lines = printed(training_run(tmp_path), HISTORY).splitlines()
    assert lines[:3] == [
        "fedavg on mnist-logistic: K = 100 clients (iid), C = 0.1, E = 1, B = 10, "
        "learning rate 0.04, target none, seed 1",
        "data: made up",
        f"results: {tmp_path}",
    ]


def test_plain_line_has_round_accuracy_loss_bytes_and_time_left(every_round):
    text = printed(training_run(num_server_rounds=10), HISTORY)
    lines = rounds_printed(text)
    assert len(lines) == 3
    assert lines[0].startswith("round  0/10  accuracy 0.1000")
    scores = "accuracy 0.5000 (best 0.5000)  loss 1.2500  train loss 1.5000"
    assert f"{scores}  traffic 1.5 MB" in lines[1]
    assert "accuracy 0.4000 (best 0.5000)" in lines[2]
    assert "traffic 3.0 MB  rejected 1" in lines[2]
    assert "ETA 0:0" in lines[2]
    assert "\x1b" not in text


def test_line_says_of_how_many_clients_a_mean_is(every_round):
    partial = {"train_loss": "3 of 4 clients", "client_metrics.accuracy": "1 of 2 clients"}
    clients = {"accuracy": 0.25, "accuracy-p10": 0.125}
    of_all = partial | {"client_metrics.accuracy-p10": "1 of 2 clients"}
    metrics = replace(HISTORY[1], client_metrics=clients, partial=of_all)
    text = printed(training_run(num_server_rounds=10), [HISTORY[0], metrics])
    assert "train loss 1.5000 (3 of 4 clients)" in text
    assert "on clients 0.2500 (1 of 2 clients, 10th percentile 0.1250)" in text
    metrics = replace(metrics, partial={"client_metrics.accuracy-p10": "17 of 20 clients"})
    text = printed(training_run(num_server_rounds=10), [HISTORY[0], metrics])
    assert "on clients 0.2500 (10th percentile of 17 of 20 clients 0.1250)" in text
    metrics = replace(metrics, partial=of_all)
    text = printed(training_run(num_server_rounds=10, local_arrays="bn*"), [HISTORY[0], metrics])
    assert "best accuracy on clients 0.2500 (1 of 2 clients) in round 1" in text


@pytest.mark.parametrize("terminal", [False, True])
def test_run_with_local_arrays_shows_the_clients_own_accuracy_as_the_best(every_round, terminal):
    own = [None, 0.75, 0.5]
    rounds = [
        replace(metrics, client_metrics={} if accuracy is None else {"accuracy": accuracy})
        for metrics, accuracy in zip(HISTORY, own, strict=True)
    ]
    run = training_run(num_server_rounds=2, local_arrays="bn*")
    text = printed(run, rounds, terminal=terminal)
    if terminal:
        assert "on clients 0.5000  traffic" in text
        return
    assert "on clients 0.5000 (best 0.7500)" in text
    assert "done: best accuracy on clients 0.7500 in round 1; no target" in text
    text = printed(run, HISTORY)
    assert "done: best accuracy on clients not known; no target" in text


def test_terminal_gets_one_live_line(every_round):
    text = printed(training_run(num_server_rounds=10), HISTORY, terminal=True)
    assert "\x1b" in text
    assert "round 2/10" in text
    assert "accuracy 0.4000  loss 1.1000  traffic 3.0 MB  rejected 1 ETA" in text


def test_resumed_training_counts_the_traffic_of_the_completed_rounds(every_round):
    run = training_run(completed=HISTORY[:2], num_server_rounds=10)
    (line,) = rounds_printed(printed(run, HISTORY[2:]))
    assert "(best 0.5000)" in line
    assert "traffic 3.0 MB" in line


@pytest.mark.parametrize(
    ("target", "reached_after", "expected"),
    [
        ("none", None, "no target"),
        (0.45, 0.9, "0.9 rounds to 0.45"),
        (0.9, None, "target 0.9 not reached in 2 rounds"),
    ],
)
def test_result_has_best_accuracy_target_and_folder(tmp_path, target, reached_after, expected):
    run = training_run(tmp_path, target=target)
    result = TrainingResult(HISTORY, MODEL, reached_after)
    lines = printed(run, HISTORY, result).splitlines()
    assert lines[-2:] == [
        f"done: best accuracy 0.5000 in round 1; {expected}",
        f"results: {tmp_path}",
    ]


def test_last_line_has_virtual_time_and_privacy_where_they_are_counted():
    privacy = {"epsilon": 1.234, "epsilon-replace-one": 2.345, "delta": 1e-5}
    counted = {"virtual_seconds": {"round": 90.0}, "privacy": privacy}
    history = [HISTORY[0], *(replace(metrics, **counted) for metrics in HISTORY[1:])]
    minutes = 1.5 * (len(history) - 1)
    text = printed(training_run(), history)
    assert (
        f"; {minutes:.1f} min on the virtual clock; "
        "epsilon 1.23 (zero-out) or 2.35 (replace-one) at delta 1e-05\n"
    ) in text
    assert "virtual" not in printed(training_run(), HISTORY)


@pytest.mark.parametrize("terminal", [False, True])
def test_run_with_validation_shows_its_own_best_and_the_test_value_there(every_round, terminal):
    rounds = [
        replace(metrics, validation_metrics={"accuracy": accuracy, "loss": 1.0})
        for metrics, accuracy in zip(HISTORY, (0.2, 0.6, 0.75), strict=True)
    ]
    text = printed(training_run(num_server_rounds=2), rounds, terminal=terminal)
    if terminal:
        assert "accuracy 0.4000  loss 1.1000  validation 0.7500" in text
        return
    assert "accuracy 0.4000  validation 0.7500 (best 0.7500)  loss 1.1000" in text
    chosen = "test accuracy 0.4000 in round 2, the best on validation examples (0.7500)"
    assert f"done: {chosen}; no target" in text
