"""`compare`, on small real trainings and on made-up runs."""

import csv
import json

import numpy as np
import pytest

from fedavg_app.cli import comparison_figure
from fedavg_app.config import CentralConfig, RunConfig
from tests.support import fake_runs


def test_comparison_counts_rounds_bytes_and_seconds_to_the_target(show, tmp_path):
    """The target lies half between rounds 1 and 2, at 10 and 20 MB up and twice that down."""
    traffic = {"bytes_up": 10_000_000, "bytes_down": 20_000_000}
    history = [{**entry, **traffic, "seconds": 2} for entry in fake_runs.HISTORY]
    config = RunConfig(task="mnist-logistic", learning_rate=0.1)
    for name in ("a", "b"):
        fake_runs.write(tmp_path / name, config, history, seconds=7)
    words = ["compare", tmp_path / "a", tmp_path / "b", "--target"]
    assert cells(show(*words, "0.9"))[::2] == [
        ["fedavg (a)", "2", "0.9500", "0.9500", "0", "20.0 MB", "40.0 MB", "6.0 s"],
        ["fedavg (a)", "1.5", "0", "20.0 MB", "40.0 MB", "6.0 s"],
    ]
    assert cells(show(*words, "0.85"))[2][1:] == ["1", "0", "10.0 MB", "20.0 MB", "4.0 s"]
    assert cells(show(*words, "0.99"))[2][1:] == ["-"] * 5
    # Each of ten sends 1 MB a round, and is sent 2: 2.1 s at these rates.
    link = ("--up=10", "--down=20", "--latency=250")
    shown = show(*words, "0.9", *link)
    assert {row[-1] for row in cells(shown)} == {"6.3 s"}


def cells(shown):
    """Return the cells of all tables' rows."""
    rows = [line.split("│")[1:-1] for line in shown.splitlines() if line.startswith("│")]
    return [[cell.strip() for cell in row] for row in rows]


def seeds(folder, **changes):
    """Write runs of two strategies with three seeds each, the n-th seed with n times the bytes."""
    for strategy in ("fedavg", "stc"):
        for seed in (1, 2, 3):
            config = RunConfig(
                task="mnist-logistic", learning_rate=0.1, strategy=strategy, seed=seed, **changes
            )
            history = [
                {**line, "total": {key: seed * value for key, value in line["total"].items()},
                 "virtual_seconds": {"round": 30.0 * seed} if line["round"] else {}}
                for line in fake_runs.HISTORY
            ]  # fmt: skip
            if (strategy, seed) == ("stc", 3):
                history = history[:2]
            fake_runs.write(folder / f"{strategy}-{seed}", config, history)
    return sorted(folder.iterdir())


def test_runs_that_differ_in_the_seed_are_one_line_with_mean_and_range(show, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    runs = seeds(tmp_path / "runs")
    path = runs[0] / "config.json"  # the device does not make it another run
    path.write_text(json.dumps({**json.loads(path.read_text()), "device": "cuda"}))
    words = ["compare", *runs, "--target", "0.9", "--spread"]
    assert "± 20.0 MB" in show(*words, "std")  # 20, 40 and 60
    shown = show(*words, "range", "--plot", tmp_path / "bands.pdf")
    rows = {row[0]: row for row in cells(shown) if row[0]}
    assert rows["fedavg"][1:5] == ["3", "1.5", "0", "40.0 MB"]
    assert "(20.0-60.0 MB)" in shown
    assert rows["stc"][4] == "30.0 MB"
    assert ", 2 of 3" in shown
    assert "(1.0-3.0 min)" in shown  # virtual
    assert (tmp_path / "bands.pdf").read_bytes().startswith(b"%PDF")


def scaffold(folder):
    """Write four runs of a method: the accuracy of one falls, one diverged, and one was killed."""
    runs = []
    courses = {
        1: [0.1, 0.836, 0.7, 0.465], 2: [0.1, 0.064], 3: [0.1, 0.2, 0.3], 4: [0.1, 0.5, 0.8, 0.781],
    }  # fmt: skip
    for seed, accuracies in courses.items():
        rejected = {"5": "NaN", "7": "late"} if seed == 1 else {}
        lines = [
            fake_runs.line(number, accuracy, rejected=rejected if number else {})
            for number, accuracy in enumerate(accuracies)
        ]
        config = RunConfig(task="mnist-logistic", strategy="scaffold", seed=seed)
        status = "diverged" if seed == 2 else "finished"
        runs.append(fake_runs.write(folder / str(seed), config, lines, status=status))
    (runs[2] / "summary.json").unlink()
    with (runs[2] / "history.jsonl").open("a") as file:
        file.write('{"round": 3, "half a li')
    return runs


def test_mean_leaves_out_diverged_and_unfinished_runs_and_has_final_and_best_values(show, tmp_path):
    runs = scaffold(tmp_path)
    shown = show("compare", *runs, "--csv", tmp_path / "all.csv")
    assert shown.splitlines()[0] == (
        f"left out: {runs[2]}: unfinished after round 2; --unfinished includes it"
    )
    with (tmp_path / "all.csv").open() as file:
        table = list(csv.DictReader(file))
    found = [row for row in table if row["row"] == "mean"]
    assert [(row["run"], row["runs"], row["status"]) for row in found] == [
        ("scaffold", "2", "finished"), ("scaffold (diverged)", "1", "diverged"),
    ]  # fmt: skip
    means = [(float(row["best_accuracy"]), float(row["final_accuracy"])) for row in found]
    assert means == [(pytest.approx(0.818), pytest.approx(0.623)), (0.1, 0.064)]
    rejected = {row["row"]: row["rejected"] for row in table if row["run"] == "scaffold"}
    assert (float(rejected["mean"]), rejected["max"]) == (3, "6")
    assert "2 finished" in shown


@pytest.mark.parametrize("status", ["interrupted", "no-replies"])
def test_unfinished_and_repeated_runs_are_left_out_or_lines_of_their_own(tmp_path, show, status):
    runs = scaffold(tmp_path)
    path = runs[3] / "summary.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "status": status}))
    shown = show("compare", runs[0], runs[3])
    left_out = f"left out: {runs[3]}: {status} after round 3; --unfinished includes it"
    assert shown.splitlines()[0] == left_out
    assert [row[:4] for row in cells(shown)] == [["scaffold", "3", "0.8360", "0.4650"]]
    shown = show("compare", runs[0], runs[0])
    assert shown.splitlines()[0] == f"left out: {runs[0]}: it is there already"
    assert [row[:4] for row in cells(shown)] == [["scaffold", "3", "0.8360", "0.4650"]]
    shown = cells(show("compare", *runs, "--unfinished"))
    assert [row[:2] for row in shown] == [
        ["scaffold", "finished"], ["scaffold (diverged)", "diverged"],
        ["scaffold (unfinished)", "unfinished"], [f"scaffold ({status})", status],
    ]  # fmt: skip


def test_table_fits_a_narrow_terminal_without_splitting_a_number(tmp_path, show, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    shown = show("compare", *scaffold(tmp_path), "--spread", "range")
    assert all(len(line) <= 80 for line in shown.splitlines() if line[0] in "┃│")
    found = {cell for row in cells(shown) for cell in row}
    assert {"(0.8000-", "0.8360)", "(0.4650-", "0.7810)", "30.0 MB", "diverged"} <= found


def test_curves_are_drawn_to_each_runs_own_end(tmp_path, show, monkeypatch):
    """Runs of one method are thin lines; their mean ends with the shortest of them."""
    figures = []
    monkeypatch.setattr(comparison_figure, "save_figure", lambda figure, *_: figures.append(figure))
    runs = scaffold(tmp_path)
    history = runs[3] / "history.jsonl"
    history.write_text("".join(history.read_text().splitlines(keepends=True)[:3]))
    show("compare", *runs, "--plot", tmp_path / "all.png", "--unfinished")
    lines = [line.get_xydata().tolist() for line in figures[0].axes[0].lines]
    long, short = [[0, 0.1], [1, 0.836], [2, 0.7], [3, 0.465]], [[0, 0.1], [1, 0.5], [2, 0.8]]
    assert long in lines
    assert short in lines
    assert [[0, 0.1], [1, pytest.approx(0.668)], [2, 0.75]] in lines
    assert [[0, 0.1], [1, 0.064]] in lines
    assert [[1, 0.064]] in lines  # the mark where it diverged
    assert [[0, 0.1], [1, 0.2], [2, 0.3]] in lines
    (legend,) = figures[0].legends
    assert [text.get_text() for text in legend.get_texts()] == [
        "scaffold", "scaffold (diverged)", "scaffold (unfinished)",
    ]  # fmt: skip


def test_comparison_of_runs_none_of_which_has_ended_says_so(tmp_path, command_line):
    run = scaffold(tmp_path)[2]
    status, _, error = command_line("compare", run)
    assert status == 1
    assert error == f"error: RUN = '{run}': no run finished; give one that did\n"
    (run / "history.jsonl").write_text("")
    status, shown, _ = command_line("compare", run, "--unfinished")
    assert status == 1
    assert shown == f"left out: {run}: unfinished, without a round\n"


def test_run_with_local_arrays_is_compared_by_the_clients_own_accuracy(tmp_path, show):
    own = [{}, {"accuracy": 0.4}, {"accuracy": 0.8}]
    lines = [
        {**line, "client_metrics": of} for line, of in zip(fake_runs.HISTORY, own, strict=True)
    ]
    config = RunConfig(task="mnist-logistic", local_arrays="bn*")
    run = fake_runs.write(tmp_path / "run", config, lines)
    shown = show("compare", run, "--target", "0.6")
    totals, until = cells(shown)
    assert totals[1:4] == ["2", "0.8000", "0.8000"]
    assert until[1] == "1.5"
    assert "fedavg: the accuracy is the clients' own, who keep local-arrays" in shown


def with_clients(folder, name, *own):
    """Write a run whose clients have these values in its last round."""
    values = {str(client): value for client, value in enumerate(own)}
    last = {**fake_runs.HISTORY[-1], "client_values": {"accuracy": values} if own else {}}
    config = RunConfig(task="mnist-logistic", strategy=name)
    return fake_runs.write(folder / name, config, [*fake_runs.HISTORY[:-1], last])


def test_statistics_of_the_clients_own_values_are_columns(tmp_path, show, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    runs = [
        with_clients(tmp_path, "fedavg", *np.linspace(0.5, 1, 11)),
        with_clients(tmp_path, "stc", 0.25, 0.75),
        with_clients(tmp_path, "topk"),
    ]
    names = ("client:mean", "client:p10", "client:p90", "client:worst")
    words = [word for name in (*names, names[0]) for word in ("--column", name)]
    table, tex = tmp_path / "table.csv", tmp_path / "table.tex"
    shown = show("compare", *runs, *words, "--csv", table, "--latex", tex)
    assert [row[4:8] for row in cells(shown)] == [
        ["0.7500", "0.5500", "0.9500", "0.5000"], ["0.5000", "0.3000", "0.7000", "0.2500"],
        ["-"] * 4,
    ]  # fmt: skip
    with table.open() as file:
        rows = [row for row in csv.DictReader(file) if row["row"] == "run"]
    assert [float(row["client:p10_accuracy"] or "nan") for row in rows] == pytest.approx(
        [0.55, 0.3, float("nan")], nan_ok=True
    )
    assert r"\textbf{0.5500} & \textbf{0.9500}" in tex.read_text()


@pytest.mark.parametrize(
    ("column", "own", "reason"),
    [
        ("client:p101", [0.5], "give client:mean, client:worst or a percentile such as client:p10"),
        ("p10", [0.5], "give client:mean"),
        ("client:p10", [], "no client of these runs tested the model; give runs with a fraction"),
    ],
)
def test_columns_that_no_run_has_are_refused(tmp_path, command_line, column, own, reason):
    run = with_clients(tmp_path, "fedavg", *own)
    status, _, error = command_line("compare", run, "--column", column)
    assert status == 1
    assert error.startswith(f"error: column = '{column}': {reason}")


def test_run_is_compared_by_its_own_objective(tmp_path, show, command_line):
    lines = [
        {**line, "accuracy": None, "test_metrics": {"mae": mae}}
        for line, mae in zip(fake_runs.HISTORY, (9.0, 3.0, 5.0), strict=True)
    ]
    config = RunConfig(task="mnist-logistic", objective="min mae")
    run = fake_runs.write(tmp_path / "run", config, fake_runs.HISTORY)
    (run / "history.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    shown = show("compare", run, "--target", "6", "--csv", tmp_path / "table.csv")
    totals, until = cells(shown)
    assert totals[1:4] == ["2", "3.0000", "5.0000"]
    assert until[1] == "0.5"  # half of the way from 9 to 3
    assert "whole runs, by mae" in shown
    assert "to mae 6" in shown


def test_runs_of_different_objectives_have_tables_and_panels_of_their_own(
    show, tmp_path, monkeypatch
):
    figures = []
    monkeypatch.setattr(comparison_figure, "save_figure", lambda figure, *_: figures.append(figure))
    runs = [
        fake_runs.write(
            tmp_path / objective,
            RunConfig(task="mnist-logistic", strategy=strategy, objective=objective),
            fake_runs.HISTORY,
        )
        for strategy, objective in (("fedavg", "max accuracy"), ("stc", "min loss"))
    ]
    words = ["--csv", tmp_path / "a.csv", "--latex", tmp_path / "a.tex"]
    plot = ["--plot", tmp_path / "a.png", "--panel", "round", "--panel", "up"]
    shown = show("compare", *runs, "--target", "0.9", *words, *plot)
    names = [row[0].partition(",")[0] for row in cells(shown)]
    assert [name for name in names if name[:3] in ("fed", "stc")] == ["fedavg"] * 2 + ["stc"] * 2
    titles = [line.strip() for line in shown.splitlines() if line.startswith(("whole", "to "))]
    assert titles == ["whole runs", "to accuracy 0.9", "whole runs, by loss", "to loss 0.9"]
    assert [axes.get_ylabel() for axes in figures[0].axes] == ["test accuracy", "", "test loss", ""]
    assert (tmp_path / "a.tex").read_text().count("begin{tabular}") == 2
    with (tmp_path / "a.csv").open() as file:
        means = [row for row in csv.DictReader(file) if row["row"] == "mean"]
    assert [(row["best_accuracy"], row["best_loss"]) for row in means] == [
        ("0.95", ""), ("", "0.123456"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"learning-rate": 0.5}, ["fedavg, learning-rate 0.1", "fedavg, learning-rate 0.5"]),
        ({"data-fingerprint": "8" * 64}, ["fedavg, data 7ecee0b9", "fedavg, data 88888888"]),
    ],
)
def test_runs_with_different_meanings_of_auto_are_separate_lines(tmp_path, show, changes, names):
    runs = []
    for seed, summary in ((1, {}), (2, changes)):
        config = RunConfig(task="mnist-logistic", seed=seed)
        summary = {"learning-rate": 0.1, **summary}
        runs.append(fake_runs.write(tmp_path / str(seed), config, fake_runs.HISTORY, **summary))
    assert [row[0] for row in cells(show("compare", *runs))] == names


def test_lines_are_named_by_label_and_grouped_by_key(show, tmp_path):
    runs = seeds(tmp_path / "seeds")
    labels = [word for name in ("dense",) * 3 + ("sparse_%",) * 3 for word in ("--label", name)]
    shown = cells(show("compare", *runs, *labels))
    assert [row[0] for row in shown if row[0]] == ["dense", "sparse_%"]
    shown = cells(show("compare", *runs, "--group-by", "seed"))
    assert [row[0] for row in shown if row[0]] == ["seed 1", "seed 2", "seed 3"]
    labels = [word for name in "abcd" for word in ("--label", name)]  # the third is left out
    shown = cells(show("compare", *scaffold(tmp_path / "scaffold"), *labels))
    assert [row[0] for row in shown] == ["a", "b (diverged)", "d"]
    for rate in (0.04, 0.01):
        config = RunConfig(task="mnist-logistic", learning_rate=rate)
        fake_runs.write(tmp_path / "rates" / str(rate), config, fake_runs.HISTORY)
    shown = cells(show("compare", *(tmp_path / "rates").iterdir()))
    assert {row[0] for row in shown} == {"learning-rate 0.04", "learning-rate 0.01"}


def test_runs_of_different_settings_stay_separate_beside_a_central_run(show, tmp_path):
    """Its config has none of the keys in which they differ."""
    different = [
        {"seed": 1}, {"seed": 2, "partition": "shards"}, {"seed": 3, "local_epochs": 5},
    ]  # fmt: skip
    runs = [
        fake_runs.write(
            tmp_path / str(number), RunConfig(task="mnist-logistic", **keys), fake_runs.HISTORY
        )
        for number, keys in enumerate(different)
    ]
    older = json.loads((runs[0] / "config.json").read_text())
    del older["partition"]
    (runs[0] / "config.json").write_text(json.dumps(older))
    central = fake_runs.write(
        tmp_path / "central", CentralConfig(task="mnist-logistic"), fake_runs.HISTORY
    )
    for others in ([], [central]):
        show("compare", *runs, *others, "--csv", tmp_path / "table.csv")
        with (tmp_path / "table.csv").open() as file:
            table = [row["run"] for row in csv.DictReader(file) if row["row"] == "mean"]
        assert len(table) == len(set(table)) == 3 + len(others)
        assert any("shards" in name for name in table)
        assert any("local-epochs 5" in name for name in table)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--label", "a"], "error: label = 'a': give one for each of the 6"),
        (["--group-by", "sed"], "error: group-by = 'sed': unknown key; did you mean seed?"),
        (["--plot", "a.jpg"], "error: plot = 'a.jpg': give a name that ends in .png, .pdf, .svg"),
        (
            ["--csv", "nowhere/a.csv"],
            "error: csv = 'nowhere/a.csv': cannot be written: No such file",
        ),
        (["--width", "3.3"], "error: width = '3.3': give --plot, too"),
        (["--panel", "up", "--panel", "down"], "error: panel = 'up, down': give --plot, too"),
        (["--siunitx"], "error: siunitx = 'True': give --latex, too"),
        (["--up", "3"], "error: up, down = (3.0, None): give both in Mbit/s"),
        (["--link", "4g", "--down", "nan"], "error: down = nan: should be greater than 0"),
    ],
)
def test_comparison_refuses_what_it_cannot_do_in_one_line(command_line, tmp_path, words, problem):
    runs = seeds(tmp_path)
    status, _, error = command_line("compare", *runs, *words)
    assert status != 0
    assert error.splitlines()[-1].startswith(problem)


def validated(folder):
    """Write a run whose validation accuracy is best in round 1, its test accuracy in round 2."""
    own = ({"accuracy": 0.3}, {"accuracy": 0.9}, {"accuracy": 0.7})
    lines = [
        {**line, "validation_metrics": of} for line, of in zip(fake_runs.HISTORY, own, strict=True)
    ]
    config = RunConfig(task="mnist-logistic", validation=0.1, learning_rate=0.1, target="none")
    return fake_runs.write(folder / "run", config, lines)


def test_run_with_validation_is_compared_by_its_test_value_in_the_round_that_validation_chose(
    show, tmp_path
):
    shown = show("compare", validated(tmp_path), "--target", "0.6")
    totals, until = cells(shown)
    assert totals[1:5] == ["2", "0.8500", "0.9500", "0.9000"]
    assert until[1] == "0.5"  # half of the way from 0.3 to 0.9
    text = "fedavg: best is the test accuracy in the round that is best on validation examples"
    assert text in shown


def test_comparison_says_of_each_line_what_chose_its_best_round(show, tmp_path):
    config = RunConfig(task="mnist-logistic", learning_rate=0.1, target="none")
    plain = fake_runs.write(tmp_path / "plain", config, fake_runs.HISTORY)
    assert "\nbest on the test set\n" in show("compare", plain)
    files = ("--csv", tmp_path / "a.csv", "--latex", tmp_path / "a.tex")
    shown = show("compare", plain, validated(tmp_path), *files)
    by_validation = (
        "best is the test accuracy in the round that is best on validation examples, by which the "
        "target goes, too"
    )
    assert f"\nvalidation 0.1: {by_validation}\n" in shown
    assert "\nvalidation 0.0: best on the test set\n" in shown
    rows = list(csv.DictReader((tmp_path / "a.csv").open()))
    assert {(row["run"], row["chosen_on"]) for row in rows} == {
        ("validation 0.0", "test"), ("validation 0.1", "validation"),
    }  # fmt: skip
    best = {row["run"]: row["best_accuracy"] for row in rows if row["row"] == "mean"}
    assert best == {"validation 0.0": "0.95", "validation 0.1": "0.85"}
    chosen = {row["run"]: row["validation_accuracy"] for row in rows if row["row"] == "mean"}
    assert chosen == {"validation 0.0": "", "validation 0.1": "0.9"}
    comments = (tmp_path / "a.tex").read_text().splitlines()[:5]
    assert "% best on the test set" in comments
    assert f"% {by_validation}" in comments


def test_run_with_validation_is_shown_and_listed_by_its_test_value(show, tmp_path):
    run = validated(tmp_path)
    shown = show("show", run)
    assert (
        "accuracy: best 0.8500 in round 1, the best on validation examples (0.9000), final 0.9500"
    ) in shown
    (heading,) = [line for line in shown.splitlines() if line.startswith("round ")]
    assert "validation accuracy" in heading
    assert "accuracy 0.8500" in show("runs", tmp_path)
