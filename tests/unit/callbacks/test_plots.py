import json
import runpy
import sys

import pytest
from PIL import Image

from fedavg_app.callbacks import plots
from fedavg_app.callbacks.plots import Plots
from fedavg_app.callbacks.training_callbacks import TrainingCallbacks
from fedavg_app.results.metrics import TrainingResult
from tests.support.training_runs import MODEL, history, training_run

CURVES = {"accuracy.png", "accuracy-bits.png", "loss.png"}
ROUNDS = history([0.1, 0.4, None, 0.6])


def train(folder, rounds=ROUNDS, **changes):
    """Tell all callbacks of a simulation of a training; return its folder."""
    run = training_run(folder, **changes)
    with TrainingCallbacks(run, [Plots]) as training:
        for metrics in rounds:
            training.on_round_end(metrics, MODEL)
        training.finish(TrainingResult(list(rounds), MODEL))
    return training.run.folder


def pictures(folder):
    return {path.name for path in folder.glob("*.png")}


def test_pictures_are_written_as_the_training_ends(tmp_path):
    folder = train(tmp_path)
    assert pictures(folder) == CURVES
    for name in CURVES:
        with Image.open(folder / name) as picture:
            assert (picture.format, picture.size) == ("PNG", (1050, 630))


def test_training_whose_curves_cannot_be_drawn_finishes(tmp_path, monkeypatch, caplog, capsys):
    def fail(*_):
        raise RuntimeError("no such font")

    monkeypatch.setattr(plots, "save_figure", fail)
    folder = train(tmp_path)
    assert json.loads((folder / "summary.json").read_text())["status"] == "finished"
    assert (folder / "model.safetensors").is_file()
    assert pictures(folder) == set()
    assert "callback Plots.on_train_end failed; the run goes on" in caplog.text
    assert "no such font" in caplog.text
    assert f"results: {folder}" in capsys.readouterr().out.splitlines()[-1]


def draw_command(monkeypatch, *arguments):
    """Run `python -m fedavg_app.callbacks.plots` in this process; return its exit status."""
    monkeypatch.setattr(sys, "argv", ["plots", *map(str, arguments)])
    monkeypatch.delitem(sys.modules, "fedavg_app.callbacks.plots")
    with pytest.raises(SystemExit) as exited:
        runpy.run_module("fedavg_app.callbacks.plots", run_name="__main__")
    return exited.value.code


def test_command_draws_the_curves_of_a_folder(tmp_path, monkeypatch, capsys):
    folder = train(tmp_path)
    for name in CURVES:
        (folder / name).unlink()
    assert draw_command(monkeypatch, folder) == 0
    assert pictures(folder) == CURVES
    assert str(folder / "accuracy.png") in capsys.readouterr().out


@pytest.mark.parametrize("missing", ["history.jsonl", None])
def test_command_refuses_what_is_no_finished_run_with_one_line(
    tmp_path, monkeypatch, capsys, missing
):
    folder = tmp_path / "nowhere"
    if missing is not None:
        folder = train(tmp_path)
        (folder / missing).unlink()
    capsys.readouterr()
    assert draw_command(monkeypatch, folder) == 1
    shown = capsys.readouterr()
    why = "it does not exist" if missing is None else f"it has no {missing}"
    fix = f"give the folder of a run that has ended ({why})"
    assert shown.err == f"error: RUN = '{folder}': {fix}\n"
    assert shown.out == ""
