import json

from PIL import Image

from fedavg_app.callbacks import plots
from fedavg_app.callbacks.plots import Plots
from fedavg_app.callbacks.training_callbacks import TrainingCallbacks
from tests.support.training_runs import MODEL, history, training_run

CURVES = {"accuracy.png", "accuracy-bits.png", "loss.png"}
ROUNDS = history([0.1, 0.4, None, 0.6])


def train(folder, rounds=ROUNDS, **changes):
    """Tell all callbacks of a simulation of a training; return its folder."""
    run = training_run(folder, **changes)
    with TrainingCallbacks(run, [Plots]) as training:
        for metrics in rounds:
            training.on_round_end(metrics, MODEL)
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
