import subprocess
from dataclasses import replace

import pytest

from fedavg_app.config import RunConfig, with_clients
from fedavg_app.errors import ConfigError
from fedavg_app.sweep.planned_run import PlannedRun
from fedavg_app.sweep.run_all import exclusive_folder
from fedavg_app.sweep.run_process import RunProcess, launcher
from tests.support.fake_runs import HISTORY, EndedProcess, write

RUN = PlannedRun("a run", "run", with_clients(RunConfig(task="mnist-logistic")))


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
        (earlier / "checkpoint").write_text("{}")
    RunProcess(RUN, launch, tmp_path)
    assert found == [earlier if is_resumed else None]
    assert earlier.exists() == is_resumed  # what cannot be resumed is deleted


@pytest.mark.parametrize(
    ("had", "planned", "resumes"),
    [
        (("1 MB up", 20), ("3 MB up", 60), True),
        (("1 MB up", 20), ("3 MB up", 10), False),
        (("", 20), ("3 MB up", 60), False),
        (("1 MB up", 20), ("", 60), False),
    ],
)
def test_run_with_a_budget_resumes_with_a_larger_budget(
    tmp_path, monkeypatch, had, planned, resumes
):
    def config(budget, rounds):
        update = {"budget": budget, "num_server_rounds": rounds, "data_dir": "/data"}
        return RUN.config.model_copy(update=update)

    started = []
    monkeypatch.setattr(
        subprocess, "Popen", lambda words, **_: started.append(words) or EndedProcess(0)
    )
    earlier = write(tmp_path / RUN.slug / "earlier", config(*had), HISTORY)
    (earlier / "checkpoint").write_text("{}")
    RunProcess(replace(RUN, config=config(*planned)), launcher(None, 1, lambda: ""), tmp_path)
    assert started[0][2] == ("resume" if resumes else "run")
    if resumes:
        assert {f"--budget={planned[0]}", f"--num-server-rounds={planned[1]}"} <= set(started[0])


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({}, ["--checkpoint-seconds=60"]),
        ({"checkpoint_every": 7}, ["--checkpoint-every", "7"]),
        ({"checkpoint_seconds": 5.0}, ["--checkpoint-seconds", "5.0"]),
    ],
)
def test_checkpoints_are_as_the_config_says_and_else_a_minute_apart(
    tmp_path, monkeypatch, keys, words
):
    started = []
    monkeypatch.setattr(subprocess, "Popen", lambda words, **_: started.append(words))
    launcher(None, 1, lambda: "")(RUN.config.model_copy(update=keys), tmp_path, None)
    found = [word for word in started[0] if word.startswith("--checkpoint") or word in words]
    assert found == words


def test_folder_is_locked_until_it_is_left(tmp_path):
    folder = tmp_path / "made-up"
    in_use = pytest.raises(ConfigError, match="'made-up': a sweep, or runs of a killed sweep")
    with exclusive_folder(folder), in_use, exclusive_folder(folder):
        pass
    with exclusive_folder(folder):
        pass
