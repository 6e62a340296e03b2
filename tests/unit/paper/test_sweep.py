import pytest

from fedavg_app.errors import RunError
from fedavg_app.sweep import run_all as sweep_module
from fedavg_app.sweep.planned_run import identity
from paper.experiments import in_order
from paper.records import by_run, read_all, read_run
from paper.records import write as write_record
from paper.sweep import sweep
from tests.support import fake_runs
from tests.support.fake_runs import HISTORY, FakeRuns, experiment, files, line, write

CONFIGS = [run.config for _, run in in_order(experiment().cells())]


@pytest.fixture(autouse=True)
def _no_polling(monkeypatch):
    monkeypatch.setattr(sweep_module, "POLL_SECONDS", 0)


def records(results):
    return by_run(read_all(results / "records" / "made-up"))


def test_each_run_is_done_once_and_in_order(tmp_path, capsys):
    runs = FakeRuns()
    sweep(experiment(), tmp_path, runs, jobs=1)
    assert runs.started == CONFIGS
    assert set(records(tmp_path)) == {identity(config) for config in CONFIGS}
    shown = capsys.readouterr().out
    assert "made-up: 0 of 8 runs are done" in shown
    assert (
        "1/8  E = 1 | IID, seed 1, fedavg: finished after round 2, accuracy 0.9500 at best" in shown
    )
    again = FakeRuns()
    sweep(experiment(), tmp_path, again, jobs=1)
    assert again.started == []
    folder = tmp_path / "unfinished" / "made-up"
    assert list(folder.iterdir()) == [folder / "lock"]


def test_record_of_run_that_reached_target_in_fewer_rounds_is_taken(tmp_path):
    given = CONFIGS[0].model_copy(update={"num_server_rounds": 50})
    lines = [line(0, 0.1), line(18, 0.95)]
    write(tmp_path / "run", given, lines, **{"rounds-to-target": 17.5})
    folder = tmp_path / "records" / "made-up"
    folder.mkdir(parents=True)
    write_record(read_run(tmp_path / "run"), folder / "one.json")
    assert set(records(tmp_path)) == {identity(given)}
    runs = FakeRuns()
    sweep(experiment(), tmp_path, runs, jobs=1)
    assert runs.started == CONFIGS[1:]


def test_diverged_run_is_recorded_and_failed_run_is_repeated(tmp_path, capsys):
    statuses = {1: "diverged", 2: "no-replies"}
    reason = "no usable reply in 3 rounds in a row: array 'b' has NaN or infinite values"

    def leaves(config):
        if config.local_epochs == 1:
            return files(config, HISTORY), 0
        return files(config, HISTORY, status=statuses[config.seed], reason=reason), 1

    with pytest.raises(RunError, match="2 of the runs failed; the lines above say why"):
        sweep(experiment(), tmp_path, FakeRuns(leaves), jobs=3)
    recorded = [record.status for record in records(tmp_path).values()]
    assert sorted(recorded) == ["diverged"] * 2 + ["finished"] * 4
    assert capsys.readouterr().out.count("failed: error: the last line") == 2
    again = FakeRuns()
    sweep(experiment(), tmp_path, again, jobs=3)
    assert [(config.local_epochs, config.seed) for config in again.started] == [(5, 2)] * 2


def test_failed_run_resumes_from_its_checkpoint(tmp_path):
    """Such as a run that the kernel killed after hours because memory ran out."""

    def leaves(config):
        return {**files(config, HISTORY, status="failed"), "checkpoint": "{}"}, 1

    def resume(config, folder, resumable):
        resumed.append(resumable)
        return fake_runs.EndedProcess(1)

    resumed = []
    for launch in (FakeRuns(leaves), resume):
        with pytest.raises(RunError, match="8 of the runs failed"):
            sweep(experiment(), tmp_path, launch, jobs=3)
    assert len(resumed) == 8
    assert all(folder.name == "run" for folder in resumed)


def test_runs_on_other_data_are_not_recorded(tmp_path, capsys):
    other = experiment(data="0" * 64)
    with pytest.raises(RunError, match="8 of the runs failed"):
        sweep(other, tmp_path, FakeRuns(), jobs=2)
    assert "it ran on other data (MNIST in /some/where); give --data-dir" in capsys.readouterr().out
    assert not records(tmp_path)
    sweep(experiment(data=fake_runs.FINGERPRINT), tmp_path, FakeRuns(), jobs=2)
    assert len(records(tmp_path)) == 8
