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


@pytest.mark.parametrize(("worse", "worst"), [("mae-p90", 10.0), ("mae-p10", 0.0)])
def test_distribution_over_the_clients_is_drawn(worse, worst):
    own = {"mae": {client: float(client) for client in range(11)}}
    tested = {"client_values": own, "client_metrics": {"mae": 5.0, worse: 9.0}}
    history = [
        RoundMetrics(0),
        RoundMetrics(1),
        RoundMetrics(2, **tested),
        RoundMetrics(4, **tested),
    ]
    (axes,) = figures._metric(history, "mae", None, "a run").axes
    curves = {line.get_label(): line for line in axes.lines}
    assert {label: list(curve.get_ydata()) for label, curve in curves.items()} == {
        "mean of the clients": [5.0, 5.0], "worst client": [worst, worst],
    }  # fmt: skip
    (band,) = axes.collections
    (path,) = band.get_paths()
    assert {tuple(point) for point in path.vertices} == {(x, y) for x in (2, 4) for y in (1, 9)}
