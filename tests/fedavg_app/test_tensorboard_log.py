import sys

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import simulation
from fedavg_app import tensorboard_log
from fedavg_app.central import train
from fedavg_app.config import CentralConfig, RunConfig
from fedavg_app.history import RoundRecord
from fedavg_app.parts import load_task
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


def test_of_rounds_that_are_done_again_the_log_shows_the_later(tmp_path):
    for rounds in ([0, 1, 2, 3], [2, 3, 4]):
        log = TensorBoardLog(tmp_path)
        for number in rounds:
            log.add(RoundRecord(number, accuracy=number / 10 + len(rounds) / 1000))
        log.close()
    shown = EventAccumulator(str(tmp_path / tensorboard_log.FOLDER)).Reload().Scalars("accuracy")
    assert [event.step for event in shown] == [0, 1, 2, 3, 4]
    expected = [0.004, 0.104, 0.203, 0.303, 0.403]
    assert [event.value for event in shown] == pytest.approx(expected)


def test_central_training_can_be_watched(tmp_path):
    config = CentralConfig(
        task="mnist-logistic", data_source="embedded", num_server_rounds=4, evaluate_every=2,
        run_dir=str(tmp_path),
    )  # fmt: skip
    train(config, load_task(config), [TensorBoardLog])
    (folder,) = tmp_path.iterdir()
    log = EventAccumulator(str(folder / tensorboard_log.FOLDER)).Reload()
    assert [event.step for event in log.Scalars("accuracy")] == [0, 2, 4]


@pytest.mark.parametrize("words", [["run"], ["central"], ["resume", "."]])
def test_without_the_package_there_is_one_line(monkeypatch, capsys, words):
    monkeypatch.setattr(tensorboard_log, "find_spec", lambda name: None)
    monkeypatch.setattr("fedavg_app.checkpoint.saved_config", lambda folder: RunConfig())
    monkeypatch.setattr(sys, "argv", ["simulation.py", *words, "--tensorboard"])
    assert simulation.main() == 1
    error = capsys.readouterr().err
    assert error.startswith("error: tensorboard = True: needs the package tensorboard; run: pip")
    assert len(error.strip().splitlines()) == 1
