import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fedavg_app.config import CentralConfig
from fedavg_app.errors import ConfigError
from paper.experiments import in_order
from paper.run_process import RunProcess, exclusive_folder, launcher
from tests.support.fake_runs import HISTORY, EndedProcess, FakeRuns, experiment, write

((CELL, RUN), *_) = in_order(experiment().cells())
SIMULATION = Path(__file__).parents[3] / "simulation.py"


@pytest.mark.parametrize(
    ("changes", "has_checkpoint", "is_resumed"),
    [({}, True, True), ({"batch_size": 99}, True, False), ({}, False, False)],
)
def test_only_checkpoint_of_the_same_run_is_resumed(tmp_path, changes, has_checkpoint, is_resumed):
    def launch(config, folder, resumable):
        assert (config, folder) == (RUN.config, tmp_path / RUN.slug)
        found.append(resumable)
        return EndedProcess(0)

    found = []
    earlier = tmp_path / RUN.slug / "earlier"
    write(earlier, RUN.config.model_copy(update=changes), HISTORY)
    if has_checkpoint:
        (earlier / "checkpoint").mkdir()
        (earlier / "checkpoint" / "state").write_text("{}")
    RunProcess(CELL, RUN, launch, tmp_path)
    assert found == [earlier if is_resumed else None]
    assert earlier.exists() == is_resumed  # what cannot be resumed is deleted


def test_folder_is_kept_only_if_the_run_can_be_resumed(tmp_path):
    process = RunProcess(CELL, RUN, FakeRuns(), tmp_path)
    process.keep_if_resumable()
    assert not (tmp_path / RUN.slug).exists()
    process = RunProcess(CELL, RUN, FakeRuns(), tmp_path)
    (tmp_path / RUN.slug / "run" / "checkpoint").mkdir()
    (tmp_path / RUN.slug / "run" / "checkpoint" / "state").write_text("{}")
    process.keep_if_resumable()
    assert (tmp_path / RUN.slug / "run").exists()
    shutil.rmtree(tmp_path / RUN.slug)


def test_last_line_is_that_of_the_output_or_the_exit_status(tmp_path):
    process = RunProcess(CELL, RUN, FakeRuns(lambda _: (None, 3)), tmp_path)
    assert process.ended()
    assert process.record() is None
    assert process.last_line() == "error: the last line"
    (tmp_path / RUN.slug / "log").write_text("\n  \n")
    assert process.last_line() == "exit status 3"


def test_folder_is_locked_until_it_is_left(tmp_path):
    folder = tmp_path / "made-up"
    in_use = pytest.raises(ConfigError, match="'made-up': a sweep of it is going on, or runs")
    with exclusive_folder(folder), in_use, exclusive_folder(folder):
        pass
    with exclusive_folder(folder):
        pass


@pytest.fixture
def commands(monkeypatch):
    """Return the commands that would have been started."""
    started = []

    def popen(command, **options):
        started.append(command)
        return EndedProcess(0)

    monkeypatch.setattr(subprocess, "Popen", popen)
    return started


def test_federated_run_is_started_with_checkpoints_in_the_given_folder(tmp_path, commands):
    config = RUN.config.model_copy(update={"num_server_rounds": 1000, "run_dir": "elsewhere"})
    launcher(str(tmp_path), 3)(config, tmp_path, None)
    assert commands == [
        [
            sys.executable, str(SIMULATION), "run", "--task", "mnist-logistic",
            "--num-server-rounds", "1000", "--target-accuracy", "0.9", "--seed", "1",
            f"--run-dir={tmp_path}", f"--data-dir={tmp_path}", "--checkpoint-every=10",
            "--num-workers=3",
        ]
    ]  # fmt: skip


def test_central_training_is_started_without_options_of_federated_runs(tmp_path, commands):
    launcher("", 3)(CentralConfig(data_dir="/some/where"), tmp_path, None)
    assert commands[0][2:] == [
        "central", "--task", "mnist-2nn", "--seed", "1", f"--run-dir={tmp_path}",
        "--data-dir=/some/where",
    ]  # fmt: skip


def test_run_with_checkpoint_is_resumed(tmp_path, commands):
    launcher("", 3)(RUN.config, tmp_path, tmp_path / "earlier")
    assert commands[0][2:] == ["resume", str(tmp_path / "earlier"), "--num-workers=3"]


def test_federated_runs_join_the_shared_ray(tmp_path, commands):
    launch = launcher("", 3, lambda: "10.0.0.1:6379")
    launch(RUN.config, tmp_path, None)
    launch(RUN.config, tmp_path, tmp_path / "earlier")
    launch(CentralConfig(), tmp_path, None)
    joins = ["--ray-address=10.0.0.1:6379" in command for command in commands]
    assert joins == [True, True, False]


def test_missing_data_directory_is_reported_before_any_run():
    with pytest.raises(ConfigError, match="data-dir = '/none': is not a directory; give one"):
        launcher("/none", 1)
