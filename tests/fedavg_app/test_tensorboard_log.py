import sys

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import simulation
from fedavg_app import tensorboard_log
from fedavg_app.config import RunConfig
from fedavg_app.server_app import run
from fedavg_app.tensorboard_log import TensorBoardLog
from tests.fedavg_app.local_grid import LocalGrid


def test_the_log_has_what_the_history_has_by_the_rounds_number(tmp_path):
    config = RunConfig(
        task="mnist-logistic", data_source="embedded", num_clients=4, fraction_train=0.5,
        num_server_rounds=3, evaluate_every=2, run_dir=str(tmp_path),
    ).model_dump(by_alias=True)  # fmt: skip
    records = run(LocalGrid(config, 4), config, listeners=[TensorBoardLog]).records
    (folder,) = tmp_path.iterdir()
    log = EventAccumulator(str(folder / tensorboard_log.FOLDER)).Reload()

    def points(name):
        return [(event.step, event.value) for event in log.Scalars(name)]

    tested = [record for record in records if record.accuracy is not None]
    assert [record.round for record in tested] == [0, 2, 3]
    assert points("accuracy") == [(r.round, pytest.approx(r.accuracy)) for r in tested]
    assert points("loss/test") == [(r.round, pytest.approx(r.test_loss)) for r in tested]
    assert [step for step, _ in points("loss/training")] == [1, 2, 3]
    assert points("bytes/up") == [(r.round, r.bytes_up) for r in records]


def test_without_the_package_there_is_one_line(monkeypatch, capsys):
    monkeypatch.setattr(tensorboard_log, "find_spec", lambda name: None)
    monkeypatch.setattr(sys, "argv", ["simulation.py", "run", "--tensorboard"])
    assert simulation.main() == 1
    error = capsys.readouterr().err
    assert error.startswith("error: tensorboard = True: needs the package tensorboard; run: pip")
    assert len(error.strip().splitlines()) == 1
