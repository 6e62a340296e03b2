from PIL import Image

from fedavg_app.callbacks.plots import Plots
from fedavg_app.callbacks.training_callbacks import TrainingCallbacks
from tests.support.training_runs import MODEL, history, training_run

CURVES = {"accuracy.png", "accuracy-bits.png", "loss.png"}
ROUNDS = history([0.1, 0.4, None, 0.6])


def test_pictures_are_written_as_the_training_ends(tmp_path):
    with TrainingCallbacks(training_run(tmp_path), [Plots]) as training:
        for metrics in ROUNDS:
            training.on_round_end(metrics, MODEL)
    pictures = list(training.run.folder.glob("*.png"))
    assert {path.name for path in pictures} == CURVES
    for path in pictures:
        with Image.open(path) as picture:
            assert (picture.format, picture.size) == ("PNG", (1050, 630))
