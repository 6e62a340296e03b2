from paper import learning_curves
from tests.support.made_up_results import MadeUpResults


def test_curves_end_at_limit_of_column_and_single_point_has_a_marker(tmp_path, monkeypatch):
    results = MadeUpResults(tmp_path, within=20)
    results.add(0, 0, {0: 0.1, 20: 0.8, 30: 0.9})
    results.add(1, 0, {0: 0.1, 10: 0.8, 16: 0.75, 20: 0.85}, rate=0.1)
    drawn = []
    monkeypatch.setattr(learning_curves, "save_figure", lambda figure, path: drawn.append(figure))
    learning_curves.draw_curves(
        results.experiment, results.table(), "rounds", tmp_path / "curves.png"
    )
    slow, fast = drawn[0].axes[0].lines[:2]
    assert slow.get_xydata().tolist() == [[20, 0.8]]
    assert fast.get_xydata().tolist() == [[10, 0.8], [16, 0.8], [20, 0.85]]
    assert (slow.get_marker(), fast.get_marker()) == ("o", "")


def test_curves_against_bytes_are_over_megabytes_of_one_participant(results, tmp_path, monkeypatch):
    results.add(0, 0, {0: 0.1, 10: 0.8, 20: 0.9})
    drawn = []
    monkeypatch.setattr(learning_curves, "save_figure", lambda figure, path: drawn.append(figure))
    learning_curves.draw_curves(
        results.experiment, results.table(), "bytes", tmp_path / "curves.png"
    )
    (axes,) = drawn[0].axes  # the other column has no runs
    assert axes.lines[0].get_xydata().tolist() == [[10, 0.8], [20, 0.9]]
    assert axes.get_xlabel() == "MB sent by one participant"


def test_curves_against_iterations_count_the_local_steps_of_each_round(
    results, tmp_path, monkeypatch
):
    results.edit("local-epochs = 1", "local-steps = 1")
    results.edit("local-epochs = 5", "local-steps = 400")
    results.add(0, 0, {0: 0.1, 100: 0.8, 200: 0.9})
    results.add(1, 0, {0: 0.1, 1: 0.8, 2: 0.9}, rate=0.1)
    drawn = []
    monkeypatch.setattr(learning_curves, "save_figure", lambda figure, path: drawn.append(figure))
    table = results.table()
    assert learning_curves.axes_of(results.experiment) == ("iterations", "bytes")
    learning_curves.draw_curves(results.experiment, table, "iterations", tmp_path / "curves.png")
    (axes,) = drawn[0].axes
    slow, fast = axes.lines[:2]
    assert slow.get_xydata().tolist() == [[100, 0.8], [200, 0.9]]
    assert fast.get_xydata().tolist() == [[400, 0.8], [800, 0.9]]
    assert axes.get_xlabel() == "iteration"


def test_a_table_that_plans_runs_with_epochs_is_drawn_against_rounds(results):
    results.edit("local-epochs = 1", "local-steps = 1")
    results.add(0, 0, {0: 0.1, 100: 0.8})
    assert learning_curves.axes_of(results.experiment) == ("rounds",)


def test_a_table_of_dense_strategies_has_no_second_picture_against_bytes(results):
    assert learning_curves.axes_of(results.experiment) == ("rounds",)
    results.edit("local-epochs = 5", 'local-epochs = 5, strategy = "stc"')
    assert learning_curves.axes_of(results.experiment) == ("rounds", "bytes")


def test_a_table_of_models_of_different_sizes_is_drawn_against_bytes_too(results):
    results.edit("local-epochs = 5", 'local-epochs = 5, task = "mnist-cnn"')
    assert learning_curves.axes_of(results.experiment) == ("rounds", "bytes")
