"""A run on a file system that is really full: needs the right to mount one."""

import logging
import shutil
import subprocess
from contextlib import contextmanager

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord

import strategies
from fedavg_app.callbacks.log_file import log_file
from fedavg_app.callbacks.run_files import RunFiles
from fedavg_app.config import RunConfig
from fedavg_app.errors import RunError
from fedavg_app.results.checkpoint import RunState, load_checkpoint, save_checkpoint
from fedavg_app.results.history import TrainingResult, read_history
from tests.support.one_line import one_line
from tests.support.processes import simulation
from tests.support.training_runs import history, training_run

logger = logging.getLogger("fedavg_app")
MODEL = ArrayRecord({"w": Array(np.zeros(25_000, np.float32))})


@contextmanager
def small_disk(folder, kilobytes):
    """Mount a file system of that size; skip the test where that is not allowed."""
    words = ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(words, capture_output=True).returncode:
        pytest.skip("needs root's rights to mount a file system")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True, capture_output=True)


def test_full_disk_is_one_line_and_the_run_resumes_from_its_last_checkpoint(tmp_path):
    with small_disk(tmp_path, 400):
        run, rounds = training_run(tmp_path, checkpoint_every=1), history([0.1, 0.2])
        directory = RunFiles(run)
        strategy = strategies.build("fedavg", {})

        def save(metrics):
            state = RunState(strategy, MODEL, [metrics], run.data.fingerprint)
            save_checkpoint(tmp_path, run.config, state)

        resumed = RunConfig(task="mnist-logistic", num_clients=100, resume=str(tmp_path))
        directory.on_round_end(rounds[0], MODEL)
        save(rounds[0])
        filler = tmp_path / "filler"
        filler.write_bytes(bytes(shutil.disk_usage(tmp_path).free - 50_000))
        directory.on_round_end(rounds[1], MODEL)
        end = lambda: directory.on_train_end(TrainingResult(rounds, MODEL))  # noqa: E731
        for fails in (lambda: save(rounds[1]), end):
            with one_line(RunError, "No space left on device", "; free some"):
                fails()
        assert read_history(tmp_path / "history.jsonl") == rounds
        filler.unlink()
        state = load_checkpoint(resumed)
        assert state.history == rounds[:1]
        save(rounds[1])
        assert load_checkpoint(resumed).history == rounds


@pytest.mark.slow
@pytest.mark.parametrize("checkpoint_every", [pytest.param(0, marks=pytest.mark.long), 1])
def test_command_on_a_full_disk_ends_with_one_line(tmp_path, processes, checkpoint_every):
    """Its log cannot be written either, nor its curves."""
    options = [
        "--data-source=embedded", "--task=mnist-logistic", "--num-workers=1", "--local-steps=1",
        "--num-server-rounds=100000", "--evaluate-every=1000", "--target=none",
        f"--checkpoint-every={checkpoint_every}", f"--run-dir={tmp_path}",
    ]  # fmt: skip
    with small_disk(tmp_path, 300):
        done = simulation("run", *options, env=processes.environment)
        (folder,) = tmp_path.iterdir()
    why = f"cannot write to {folder}: No space left on device; free some space there, or make it "
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    errors = [line for line in done.stderr.splitlines() if not line.startswith("INFO ")]
    assert errors == [f"error: {why}writable"]


def test_unwritable_log_is_one_line_if_the_training_succeeds(tmp_path, capsys, caplog):
    with small_disk(tmp_path, 100):
        with log_file(tmp_path):
            logger.info("the first line")
            filler = tmp_path / "filler"
            filler.write_bytes(bytes(shutil.disk_usage(tmp_path).free))
            for _ in range(5000):
                logger.info("a line of a training")
            filler.unlink()
        assert (tmp_path / "run.log").read_text().count("\n") < 1000
    assert "Traceback" not in capsys.readouterr().err
    (warning,) = [
        record.getMessage() for record in caplog.records if record.levelno == logging.WARNING
    ]
    assert warning == (
        f"run.log is not complete: cannot write to {tmp_path}: No space left on device; "
        "free some space there, or make it writable"
    )
