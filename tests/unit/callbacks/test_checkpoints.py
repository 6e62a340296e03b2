import time

import pytest

import strategies
from fedavg_app.callbacks import checkpoints
from fedavg_app.callbacks.checkpoints import Checkpoints
from fedavg_app.results.history import RoundMetrics
from tests.support.training_runs import MODEL, training_run


@pytest.mark.parametrize(
    ("keys", "due"),
    [
        ({}, []),
        ({"checkpoint_every": 4}, [0, 4, 8]),
        ({"checkpoint_seconds": 60}, [3, 6, 9]),  # rounds of 25 s: one after each minute
        ({"checkpoint_every": 4, "checkpoint_seconds": 60}, [0, 3, 4, 7, 8]),
    ],
)
def test_checkpoints_are_due_by_rounds_and_by_time(monkeypatch, keys, due):
    now, saved = 1000.0, []
    monkeypatch.setattr(time, "monotonic", lambda: now)
    monkeypatch.setattr(checkpoints, "save_checkpoint", lambda *args: saved.append(args[2]))
    callback = Checkpoints(training_run(**keys), strategies.build("fedavg", {}), grid=None)
    for server_round in range(10):
        callback.on_round_end(RoundMetrics(server_round), MODEL)
        now += 25
    assert [state.history[0].round for state in saved] == due
