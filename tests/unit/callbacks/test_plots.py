from PIL import Image

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
