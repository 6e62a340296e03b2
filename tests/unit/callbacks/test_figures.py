"""The losses of a training as curves: every finite loss is drawn, whatever its sign."""

import math

import pytest

from fedavg_app.callbacks import figures
from fedavg_app.results.history import RoundMetrics


@pytest.mark.parametrize(
    ("losses", "scale", "shown"),
    [
        ([2.0, 1.0, 0.5], "log", [2.0, 1.0, 0.5]),
        ([1.0, -0.5, -2.0], "linear", [1.0, -0.5, -2.0]),  # such as minus the log of a density
        ([1.0, None, math.nan, math.inf, 0.5], "log", [1.0, 0.5]),
    ],
)
def test_losses_are_drawn_whatever_their_sign(losses, scale, shown):
    history = [RoundMetrics(number, test_loss=loss) for number, loss in enumerate(losses)]
    (axes,) = figures._losses(history, "loss", "a run").axes
    assert axes.get_yscale() == scale
    (curve,) = axes.lines
    assert list(curve.get_ydata()) == shown


def test_validation_values_are_a_curve_of_their_own():
    history = [
        RoundMetrics(
            number, accuracy=0.5, validation_metrics={"accuracy": number / 10, "loss": 1.0}
        )
        for number in range(3)
    ]
    (axes,) = figures._metric(history, "accuracy", None, "a run").axes
    curves = {curve.get_label(): list(curve.get_ydata()) for curve in axes.lines}
    assert curves == {"test set": [0.5] * 3, "validation examples": [0.0, 0.1, 0.2]}
