"""`evaluate`, on a small real training."""

import json
import shutil


def test_saved_model_has_the_accuracy_of_its_run(show, folders):
    summary = json.loads((folders[0] / "summary.json").read_text())
    shown = show("evaluate", folders[0])
    assert f"test accuracy {summary['final-accuracy']:.4f}" in shown
    best = show("evaluate", folders[0], "--best")
    assert f"test accuracy {summary['best-accuracy']:.4f}" in best


def test_model_trained_on_a_gpu_can_be_tested_without_a_gpu(show, folders, tmp_path):
    shutil.copytree(folders[0], tmp_path / "run")
    path = tmp_path / "run/config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "device": "cuda"}))
    assert "test accuracy" in show("evaluate", tmp_path / "run")


def test_evaluation_of_a_run_that_has_not_ended_says_so(command_line, folders, tmp_path):
    shutil.copytree(folders[0], tmp_path / "run")
    (tmp_path / "run/model.safetensors").unlink()
    status, _, error = command_line("evaluate", tmp_path / "run")
    assert status == 1
    fix = "give the folder of a run that has ended (model.safetensors: No such file or directory"
    assert fix in error


def test_evaluation_on_other_data_than_the_runs_says_so(show, command_line, folders, tmp_path):
    shutil.copytree(folders[0], tmp_path / "run")
    words = ["evaluate", tmp_path / "run"]
    assert show(*words).startswith("data: embedded MNIST subset")
    path = tmp_path / "run/summary.json"
    summary = json.loads(path.read_text())
    path.write_text(json.dumps({**summary, "data": "full MNIST", "data-fingerprint": "0" * 64}))
    status, _, error = command_line(*words)
    assert status == 0
    assert error == "these are not the data of the run: full MNIST\n"
    path.unlink()
    assert "test accuracy" in show(*words)
