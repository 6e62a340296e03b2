"""The figure of `compare`, at the size at which it is printed."""

import json
from itertools import combinations

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.text import Text
from PIL import Image

from fedavg_app.cli import comparison_figure
from fedavg_app.config import RunConfig
from tests.support import fake_runs

NAMES = (
    "FedAvg",
    "STC, p = 1/25",
    "top-k, p = 1/25",
    "a method whose long name has no room in a row",
)
PANELS = ("round", "up", "down", "both", "link", "wall")


@pytest.fixture
def sweep(tmp_path):
    """Return the folders of a sweep's runs, two seeds of each method, by the method's name."""
    folders, names = {}, {}
    for place, name in enumerate(NAMES):
        for seed in (1, 2):
            config = RunConfig(task="mnist-logistic", learning_rate=0.1 + place, seed=seed)
            lines = [
                fake_runs.line(
                    number, 0.9 - 0.8 / (1 + number), seconds=7.0, participants=10 * bool(number),
                    bytes_up=10**7 // 8**place, bytes_down=10**7,
                    total={"bytes_up": number * 10**7 // 8**place, "bytes_down": number * 10**7},
                )
                for number in range(100)
            ]  # fmt: skip
            names[f"{place}-{seed}"] = name
            folder = tmp_path / f"{place}-{seed}" / "run"
            folders.setdefault(name, []).append(fake_runs.write(folder, config, lines))
    (tmp_path / "sweep-names.json").write_text(json.dumps(names))
    return folders


@pytest.fixture
def draw(monkeypatch, command_line, tmp_path):
    """Return a function that compares runs with some options and returns the figure."""
    figures = []
    monkeypatch.setattr(comparison_figure, "save_figure", lambda *found: figures.append(found[0]))

    def run(folders, *words):
        words = ("--plot", tmp_path / "figure.png", *words)
        status, _, error = command_line("compare", *folders, *words)
        assert status == 0, error
        return figures.pop()

    return run


def all_of(sweep):
    return [folder for own in sweep.values() for folder in own]


@pytest.mark.parametrize(
    ("width", "panels"),
    [("3.3", ("round", "both")), ("3.3", PANELS), ("5.5", ("up", "down", "link"))],
)
def test_text_of_a_printed_figure_has_8_points_is_whole_and_does_not_overlap(
    draw, sweep, width, panels
):
    words = [word for panel in panels for word in ("--panel", panel)]
    figure = draw(all_of(sweep), *words, "--link", "4g", "--width", width)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer = canvas.get_renderer()
    shown = [text for text in figure.findobj(Text) if text.get_text() and text.get_visible()]
    assert {text.get_fontsize() for text in shown} == {8}
    boxes = []
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            labels = axis.get_majorticklabels() if axis is axes.xaxis or axes.get_ylabel() else []
            least, most = sorted(axis.get_view_interval())
            found = zip(axis.get_majorticklocs(), labels, strict=False)
            boxes += [
                label.get_window_extent(renderer) for at, label in found if least <= at <= most
            ]
            if axis.get_label().get_text():
                boxes.append(axis.get_label().get_window_extent(renderer))
    boxes += [text.get_window_extent(renderer) for text in figure.legends[0].get_texts()]
    for box in boxes:
        assert box.x0 >= 0 <= box.y0
        assert box.x1 <= figure.bbox.x1
        assert box.y1 <= figure.bbox.y1
    assert not [pair for pair in combinations(boxes, 2) if pair[0].overlaps(pair[1])]


def test_panels_are_those_asked_for(draw, sweep):
    words = [word for panel in PANELS for word in ("--panel", panel)]
    figure = draw(sweep["STC, p = 1/25"], *words, "--up", "1", "--down", "1")
    assert [axes.get_xlabel() for axes in figure.axes] == [
        "round", "MB up, all clients", "MB down, all clients", "MB up and down",
        "min on the link", "min, wall clock",
    ]  # fmt: skip
    ends = [axes.lines[0].get_xdata()[-1] for axes in figure.axes]
    seconds = (
        99 * (10**6 / 8 + 10**6) * 8e-6
    )  # for one of ten clients; 10^7 bytes are the total of all
    assert ends == pytest.approx([99, 99 * 1.25, 990, 99 * 11.25, seconds / 60, 700 / 60], rel=1e-6)


def test_method_has_its_colour_in_every_figure_of_a_sweep(draw, sweep):
    def looks(figure):
        handles = figure.legends[0].legend_handles
        names = [text.get_text().replace("\n", " ") for text in figure.legends[0].get_texts()]
        found = [(to_hex(handle.get_color()), handle.get_linestyle()) for handle in handles]
        return dict(zip(names, found, strict=True))

    every = looks(draw(all_of(sweep)))
    assert list(every) == list(NAMES)
    assert len(set(every.values())) == len(NAMES)
    for name in NAMES:
        assert looks(draw(sweep[name])) == {name: every[name]}
    two = looks(draw(sweep[NAMES[3]] + sweep[NAMES[1]]))
    assert two == {name: every[name] for name in (NAMES[1], NAMES[3])}
    summary = sweep[NAMES[2]][1] / "summary.json"
    summary.write_text(json.dumps({**json.loads(summary.read_text()), "status": "diverged"}))
    after = looks(draw(all_of(sweep)))
    assert after.pop(f"{NAMES[2]} (diverged)") == every[NAMES[2]]
    assert after == every


def test_colour_is_the_methods_and_line_style_that_of_the_other_setting(draw, tmp_path):
    runs = [
        fake_runs.write(
            tmp_path / f"{strategy}-{partition}",
            RunConfig(task="mnist-logistic", strategy=strategy, partition=partition),
            fake_runs.HISTORY,
        )
        for strategy in ("fedavg", "stc")
        for partition in ("iid", "shards")
    ]
    handles = draw(runs).legends[0].legend_handles
    looks = [(handle.get_color(), handle.get_linestyle()) for handle in handles]
    assert [handle.get_label() for handle in handles] == [
        "fedavg, iid", "fedavg, shards", "stc, iid", "stc, shards",
    ]  # fmt: skip
    assert [looks.index((color, style)) for color, style in looks] == [0, 1, 2, 3]
    colors, styles = zip(*looks, strict=True)
    assert colors[0] == colors[1] != colors[2] == colors[3]
    assert styles[0] == styles[2] != styles[1] == styles[3]
    # Of one method, the settings have colours.
    colors = [handle.get_color() for handle in draw(runs[:2]).legends[0].legend_handles]
    assert colors[0] != colors[1]


def test_math_in_a_name_is_drawn_and_does_not_break(draw, command_line, sweep, tmp_path):
    name = "a method whose name is so long that its end $p = 1/25 + 1/400$ is in a second line"
    folders = sweep["FedAvg"]
    label = ("--label", name) * len(folders)
    figure = draw(folders, *label, "--width", "3.3", "--panel", "round")
    (text,) = figure.legends[0].get_texts()
    assert "$p = 1/25 + 1/400$" in text.get_text()
    assert "\n" in text.get_text()
    words = ("compare", *folders, "--plot", tmp_path / "figure.png")
    assert command_line(*words, *("--label", "costs 5 $") * len(folders))[0] == 0
    status, _, error = command_line(*words, *("--label", r"$\nonsense$") * len(folders))
    assert status == 1
    assert error.startswith(r"error: label = '$\\nonsense$': its math cannot be drawn: ")
    assert len(error.splitlines()) == 1


def test_values_shown_are_those_asked_for(draw, command_line, sweep, tmp_path):
    figure = draw(sweep["FedAvg"], "--ylim", "0.5", "0.9")
    assert {axes.get_ylim() for axes in figure.axes} == {(0.5, 0.9)}
    words = ("compare", *sweep["FedAvg"], "--plot", tmp_path / "figure.png", "--ylim", "0.9", "0.5")
    assert command_line(*words)[2] == "error: ylim = '0.9 0.5': give the smaller number first\n"


def test_run_that_diverged_between_two_tests_is_marked_where_it_ended(draw, tmp_path):
    lines = [fake_runs.line(number, None if number else 0.1) for number in range(4)]
    config = RunConfig(task="mnist-logistic")
    run = fake_runs.write(tmp_path / "run", config, lines, status="diverged")
    figure = draw([run], "--panel", "round", "--panel", "up")
    for axes, end in zip(figure.axes, (3, 30), strict=True):
        line, mark = axes.lines[-2:]
        assert line.get_xydata().tolist() == [[0, 0.1], [end, 0.1]]
        assert (mark.get_xydata().tolist(), mark.get_marker()) == ([[end, 0.1]], "x")


def test_runs_that_were_not_tested_have_no_line(draw, tmp_path):
    run = fake_runs.write(tmp_path / "run", RunConfig(), fake_runs.HISTORY)
    lines = [json.dumps(fake_runs.line(number, None)) for number in range(3)]
    (run / "history.jsonl").write_text("\n".join(lines) + "\n")
    assert not any(axes.lines for axes in draw([run]).axes)


def test_file_has_the_width_and_a_pdf_its_fonts_as_type_42(command_line, sweep, tmp_path):
    words = ("compare", *sweep["FedAvg"], "--width", "3.3", "--panel", "round", "--plot")
    assert command_line(*words, tmp_path / "figure.png")[0] == 0
    assert Image.open(tmp_path / "figure.png").width == 990  # 300 to an inch
    status, _, error = command_line(*words, tmp_path / "figure.pdf")
    assert (status, error) == (0, "")
    content = (tmp_path / "figure.pdf").read_bytes()
    assert b"/FontFile2" in content
    assert b"/Type3" not in content


def test_panel_by_link_needs_a_link(command_line, sweep, tmp_path):
    words = ("--plot", tmp_path / "figure.png", "--panel", "link")
    status, _, error = command_line("compare", *sweep["FedAvg"], *words)
    assert status == 1
    assert error == "error: panel = 'link': give a --link, or runs that all have links\n"
