import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from fedavg_app.callbacks import tensorboard
from fedavg_app.callbacks.tensorboard import TensorBoard
from fedavg_app.results.metrics import RoundMetrics, TrainingResult
from tests.support.training_runs import MODEL, history, training_run


def log(folder, rounds):
    """Log some rounds as one process does."""
    callback = TensorBoard(training_run(folder))
    for metrics in rounds:
        callback.on_round_end(metrics, MODEL)
    callback.on_train_end(TrainingResult(list(rounds)))


def points(folder, name):
    events = EventAccumulator(str(folder / tensorboard.FOLDER)).Reload().Scalars(name)
    return [(event.step, pytest.approx(event.value)) for event in events]


def test_log_has_the_metrics_of_every_round(tmp_path):
    rounds = history([0.1, None, 0.5, 0.6])
    log(tmp_path, rounds)
    assert points(tmp_path, "accuracy") == [(0, 0.1), (2, 0.5), (3, 0.6)]
    assert points(tmp_path, "loss/test") == [(0, 0.9), (2, 0.5), (3, 0.4)]
    assert points(tmp_path, "loss/training") == [(1, 0.5), (2, 0.5), (3, 0.5)]
    assert points(tmp_path, "bytes/up") == [(r.round, r.bytes_up) for r in rounds]
    assert points(tmp_path, "bytes/down") == [(r.round, r.bytes_down) for r in rounds]
    assert points(tmp_path, "rejected") == [(r.round, 0) for r in rounds]


def test_rounds_that_a_resumed_training_repeats_replace_the_earlier_ones(tmp_path):
    for rounds in ([0, 1, 2, 3], [2, 3, 4]):
        log(
            tmp_path,
            [RoundMetrics(number, accuracy=number / 10 + len(rounds) / 1000) for number in rounds],
        )
    expected = [(0, 0.004), (1, 0.104), (2, 0.203), (3, 0.303), (4, 0.403)]
    assert points(tmp_path, "accuracy") == expected
