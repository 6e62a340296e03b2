import json
import runpy
import sys
from dataclasses import replace

import pytest
from PIL import Image

from fedavg_app.callbacks import plots
from fedavg_app.callbacks.plots import Plots
from fedavg_app.callbacks.training_callbacks import TrainingCallbacks
from fedavg_app.results.metrics import RoundMetrics, TrainingResult
from tests.support.training_runs import MODEL, history, training_run

CURVES = {"accuracy.png", "accuracy-bits.png", "loss.png"}
ROUNDS = history([0.1, 0.4, None, 0.6])


@pytest.fixture
def figures(monkeypatch):
    """Return the figures that are drawn, by file name, instead of writing them."""
    drawn = {}
    monkeypatch.setattr(
        plots, "save_figure", lambda figure, path: drawn.update({path.name: figure})
    )
    return drawn


def lines(figure):
    """Return the lines of a figure's only axes: their points by label."""
    (axes,) = figure.axes
    return {
        line.get_label(): list(zip(*map(list, line.get_data()), strict=True)) for line in axes.lines
    }


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


def test_accuracy_is_drawn_against_rounds_with_the_target(tmp_path, figures):
    train(tmp_path, target_accuracy=0.55)
    drawn = lines(figures["accuracy.png"])
    assert drawn["test set"] == [(0, 0.1), (1, 0.4), (3, 0.6)]
    assert {y for _, y in drawn["target 0.55"]} == {0.55}
    title = figures["accuracy.png"].axes[0].get_title()
    assert title.startswith("Test accuracy: mnist-logistic, fedavg, K = 100 clients (iid)")


def test_no_target_line_is_drawn_without_a_target(tmp_path, figures):
    train(tmp_path)
    assert lines(figures["accuracy.png"]).keys() == {"test set"}


def test_accuracies_of_the_clients_are_drawn_where_there_are_any(tmp_path, figures):
    clients = {"accuracy-mean": 0.4, "accuracy-p10": 0.2}
    rounds = [RoundMetrics(0, accuracy=0.1), RoundMetrics(1, accuracy=0.5, client_metrics=clients)]
    train(tmp_path, rounds)
    assert lines(figures["accuracy.png"]) == {
        "test set": [(0, 0.1), (1, 0.5)],
        "mean of the clients": [(1, 0.4)],
        "a tenth of the clients are below": [(1, 0.2)],
    }


def test_accuracy_is_drawn_against_the_bits_sent_so_far(tmp_path, figures):
    rounds = [
        replace(metrics, total={**metrics.total, "theory_bits_up": 7.0 * metrics.round})
        for metrics in ROUNDS
    ]
    train(tmp_path, rounds)
    assert lines(figures["accuracy-bits.png"]) == {
        "up, as sent": [(4_000_000, 0.4), (12_000_000, 0.6)],
        "down, as sent": [(8_000_000, 0.4), (24_000_000, 0.6)],
        "up, by the formula": [(7.0, 0.4), (21.0, 0.6)],
    }


def test_traffic_is_drawn_only_where_there_is_any(tmp_path, figures):
    train(tmp_path, [RoundMetrics(n, accuracy=0.5).with_totals(None) for n in range(3)])
    assert figures.keys() == CURVES - {"accuracy-bits.png"}


def test_losses_of_test_set_and_training_are_drawn(tmp_path, figures):
    rounds = [*ROUNDS, RoundMetrics(4, accuracy=0.1, test_loss=0.0, train_loss=None)]
    train(tmp_path, rounds)
    assert lines(figures["loss.png"]) == {
        "test set": [(0, 0.9), (1, 0.6), (3, 0.4)],  # a logarithm has no place for 0
        "training": [(1, 0.5), (2, 0.5), (3, 0.5)],
    }


def test_curves_of_a_training_that_failed_are_drawn_from_its_rounds(tmp_path, figures):
    Plots(training_run(tmp_path)).on_train_end(TrainingResult(ROUNDS, error=KeyboardInterrupt()))
    assert figures.keys() == CURVES


def test_nothing_is_drawn_of_a_training_without_a_round(tmp_path, figures):
    Plots(training_run(tmp_path)).on_train_end(TrainingResult([], error=KeyboardInterrupt()))
    assert figures == {}


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


def test_command_draws_the_same_curves_as_the_callback(tmp_path, monkeypatch, figures):
    folder = train(tmp_path, target_accuracy=0.55)
    expected = {name: lines(figure) for name, figure in figures.items()}
    figures.clear()
    monkeypatch.setattr(sys, "argv", ["plots", str(folder)])
    assert plots.main() == 0
    assert {name: lines(figure) for name, figure in figures.items()} == expected
    assert "mnist-logistic, fedavg, seed 1" in figures["loss.png"].axes[0].get_title()


@pytest.mark.parametrize("missing", ["config.json", "history.jsonl", "summary.json", None])
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


def test_command_without_a_folder_shows_its_usage(monkeypatch, capsys):
    assert draw_command(monkeypatch) == 2
    assert capsys.readouterr().err == "usage: python -m fedavg_app.callbacks.plots RUN\n"
