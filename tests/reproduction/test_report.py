import base64
import re
import shutil
import struct
import sys
from html.parser import HTMLParser

import pytest

import simulation
from fedavg_app.reproduction import curves
from fedavg_app.reproduction.experiments import load
from fedavg_app.reproduction.figures import FIGURES, Figure
from fedavg_app.reproduction.records import by_run, read_all, read_run, write
from fedavg_app.reproduction.tables import fill
from fedavg_app.reproduction.wording import show
from tests.docs.reading import ROOT
from tests.reproduction import fake_runs
from tests.reproduction.fake_runs import line

TABLE = """
title = "Made up & shown"
source = "nobody 1999, table 1"
measure = "{measure}"
speedup = true
run = {{ task = "mnist-logistic", target-accuracy = 0.9, fraction-train = 0.1 }}
columns = [{{ name = "IID" }}, {{ name = "shards", run = {{ partition = "shards" }} }}]

[[rows]]
name = "slow"
run = {{ local-epochs = 1 }}
paper = [100, "not reached"]

[[rows]]
name = "fast"
run = {{ local-epochs = 5, learning-rate = [0.1, 0.2], seed = [1, 2, 3] }}
paper = [20, ""]
others = [25, ""]
"""


class Results:
    """A folder of results and one experiment, "made-up", that records are put into."""

    def __init__(self, folder, measure="rounds-to-target", within=None):
        self.folder = folder
        (folder / "experiments").mkdir(parents=True)
        path = folder / "experiments" / "made-up.toml"
        table = TABLE.format(measure=measure)
        if within:
            table = table.replace('name = "IID"', f'name = "IID", within = {within}')
        path.write_text(table)
        self.experiment = load(path)
        self.records = folder / "records" / "made-up"
        self.records.mkdir(parents=True)

    def put(self, row, column, curve, seed=1, rate="auto", **summary):
        """Record one run: its accuracies by round."""
        (run,) = (
            run
            for run in self.experiment.cells()[row][column].runs
            if (run.config.seed, run.config.learning_rate) == (seed, rate)
        )
        lines = [line(number, accuracy) for number, accuracy in curve.items()]
        folder = fake_runs.write(self.folder / "runs" / f"{column}-{run.slug}", run.config, lines,
                                 **summary)  # fmt: skip
        write(read_run(folder), self.records / f"{run.slug}.json")

    def table(self):
        return fill(self.experiment, by_run(read_all(self.records)))

    def shown(self, row, column):
        return show(self.experiment, self.table()[row][column])


@pytest.fixture
def results(tmp_path):
    return Results(tmp_path)


def test_rounds_speed_ups_and_differences_by_hand(results):
    results.put(0, 0, {0: 0.1, 40: 0.8, 60: 1.0})  # half-way: 50 rounds
    results.put(1, 0, {0: 0.1, 10: 0.9}, rate=0.1)  # 10 rounds
    slow, fast = results.shown(0, 0), results.shown(1, 0)
    assert (slow.ours, slow.speedup, slow.paper, slow.difference) == (
        "50.0", "1.0\N{MULTIPLICATION SIGN}", "100", "\N{MINUS SIGN}50 %",
    )  # fmt: skip
    assert (fast.ours, fast.speedup, fast.paper_speedup, fast.others, fast.difference) == (
        "10.0", "5.0\N{MULTIPLICATION SIGN}", "5.0\N{MULTIPLICATION SIGN}", "25",
        "\N{MINUS SIGN}50 %",
    )  # fmt: skip
    assert fast.notes == ["\N{GREEK SMALL LETTER ETA} = 0.1", "1 of 6 runs"]


def test_a_first_row_that_did_not_arrive_bounds_the_speed_up(results):
    results.put(0, 0, {0: 0.1, 100: 0.8})
    results.put(1, 0, {0: 0.1, 16: 0.9}, rate=0.1)
    assert results.shown(0, 0).speedup == ""
    assert results.shown(1, 0).speedup == "> 6.2\N{MULTIPLICATION SIGN}"  # 100 / 16 = 6.25


def test_a_first_row_that_diverged_bounds_nothing(results):
    results.put(0, 0, {0: 0.1, 100: 0.8}, status="failed", reason="the loss is not finite")
    results.put(1, 0, {0: 0.1, 16: 0.9}, rate=0.1)
    assert results.shown(1, 0).speedup == ""


def test_megabytes_bound_it_likewise(tmp_path):
    results = Results(tmp_path, "upload-to-target")
    results.put(0, 0, {0: 0.1, 100: 0.8})
    results.put(1, 0, {0: 0.1, 16: 0.9}, rate=0.1)
    assert results.shown(1, 0).speedup == "> 6.2\N{MULTIPLICATION SIGN}"


def test_the_best_rate_is_shown_with_the_mean_and_range_of_its_seeds(results):
    for seed, rounds in ((1, 30), (2, 40), (3, 38)):
        results.put(1, 0, {0: 0.1, rounds: 0.9}, seed, 0.1)
    results.put(1, 0, {0: 0.1, 50: 0.9}, 1, 0.2)
    result = results.table()[1][0]
    assert (result.value, result.low, result.high) == (36, 30, 40)
    assert results.shown(1, 0).notes == [
        "\N{GREEK SMALL LETTER ETA} = 0.1", "3 seeds: 30.0 to 40.0", "4 of 6 runs",
    ]  # fmt: skip


def test_a_rate_at_which_all_seeds_arrive_is_better_than_a_faster_one_at_which_not(results):
    results.put(1, 0, {0: 0.1, 10: 0.9}, 1, 0.1)
    results.put(1, 0, {0: 0.1, 10: 0.8}, 2, 0.1)
    assert results.table()[1][0].value == 10
    assert "1 of 2 seeds: 10.0 to 10.0" in results.shown(1, 0).notes
    results.put(1, 0, {0: 0.1, 20: 0.9}, 1, 0.2)
    assert results.table()[1][0].value == 20


def test_what_has_no_number_says_why(results):
    results.put(0, 1, {0: 0.1, 1500: 0.8766})
    reason = "no usable reply in 3 rounds in a row: array 'b' has NaN or infinite values"
    results.put(1, 1, {0: 0.1, 3: 0.5}, rate=0.1, status="failed", reason=reason)
    missed, diverged, absent = results.shown(0, 1), results.shown(1, 1), results.shown(1, 0)
    assert (missed.ours, missed.state, missed.notes) == (
        "not reached", "missed", ["in 1,500 rounds, best 87.7 %"],
    )  # fmt: skip
    assert (missed.paper, missed.speedup, missed.difference) == ("not reached", "", "")
    assert (diverged.ours, diverged.state) == ("diverged", "missed")
    assert (absent.ours, absent.state, absent.link, absent.notes) == ("not run", "absent", "", [])


def test_megabytes_are_those_of_one_participant_until_the_target(tmp_path):
    # Ten participants send 10 MB a round: one of them sends 1 MB.
    results = Results(tmp_path, "upload-to-target")
    results.put(0, 0, {0: 0.1, 40: 0.8, 60: 1.0})
    assert results.table()[0][0].value == pytest.approx(50)
    assert results.shown(0, 0).ours == "50"


def test_accuracies_differ_by_points(tmp_path):
    results = Results(tmp_path, "best-accuracy")
    path = tmp_path / "experiments" / "made-up.toml"
    path.write_text(path.read_text().replace("paper = [20", "paper = [0.9"))
    results.experiment = load(path)
    results.put(1, 0, {0: 0.1, 5: 0.87, 10: 0.8}, rate=0.1)
    results.put(1, 0, {0: 0.1, 5: 0.5}, rate=0.2)
    shown = results.shown(1, 0)
    assert (shown.ours, shown.paper, shown.difference) == (
        "87.0 %", "90 %", "\N{MINUS SIGN}3.0 points",
    )  # fmt: skip


def test_a_column_counts_the_rounds_it_names(tmp_path):
    results = Results(tmp_path, "best-accuracy")
    path = tmp_path / "experiments" / "made-up.toml"
    path.write_text(
        path.read_text().replace(
            '{ name = "shards", run = { partition = "shards" } }',
            '{ name = "in 20 rounds", within = 20 }',
        )
    )
    results.experiment = load(path)
    results.put(0, 0, {0: 0.1, 10: 0.6, 20: 0.7, 30: 0.9})
    assert [results.shown(0, place).ours for place in (0, 1)] == ["90.0 %", "70.0 %"]


def test_rounds_that_do_not_count_are_not_spoken_of_and_bound_no_speed_up(tmp_path):
    results = Results(tmp_path, within=20)
    results.put(0, 0, {0: 0.1, 20: 0.7, 100: 0.8})
    results.put(1, 0, {0: 0.1, 16: 0.9}, rate=0.1)
    assert results.shown(0, 0).notes == ["in 20 rounds, best 70.0 %"]
    assert results.shown(1, 0).speedup == "> 1.2\N{MULTIPLICATION SIGN}"  # 20 / 16 = 1.25


def test_of_rates_that_miss_the_target_the_better_in_the_rounds_that_count_is_shown(tmp_path):
    results = Results(tmp_path, within=20)
    results.put(1, 0, {0: 0.1, 20: 0.8, 100: 0.81}, rate=0.1)
    results.put(1, 0, {0: 0.1, 20: 0.7, 100: 0.89}, rate=0.2)
    assert results.shown(1, 0).notes[0] == "\N{GREEK SMALL LETTER ETA} = 0.1"


def test_curves_have_the_rounds_that_count_and_a_lone_point_can_be_seen(tmp_path, monkeypatch):
    results = Results(tmp_path, within=20)
    results.put(0, 0, {0: 0.1, 20: 0.8, 30: 0.9})
    results.put(1, 0, {0: 0.1, 10: 0.8, 16: 0.75, 20: 0.85}, rate=0.1)
    drawn = []
    monkeypatch.setattr(curves, "save", lambda figure, path: drawn.append(figure))
    curves.draw_curves(results.experiment, results.table(), "rounds", tmp_path / "curves.png")
    slow, fast = drawn[0].axes[0].lines[:2]
    assert slow.get_xydata().tolist() == [[20, 0.8]]
    assert fast.get_xydata().tolist() == [[10, 0.8], [16, 0.8], [20, 0.85]]
    assert (slow.get_marker(), fast.get_marker()) == ("o", "")


class Page(HTMLParser):
    """What a page has: elements that are not closed, references, anchors, text."""

    VOID = ("meta", "img", "br", "link", "input")

    def __init__(self, text):
        super().__init__()
        self.open, self.references, self.anchors, self.text = [], [], set(), []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.references += [values[key] for key in ("src", "href", "srcset") if key in values]
        self.anchors |= {values["id"]} if "id" in values else set()
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def report(monkeypatch, folder, *arguments):
    command = ["simulation.py", "report", "--experiments", str(folder / "experiments"),
               "--results", str(folder), *arguments]  # fmt: skip
    monkeypatch.setattr(sys, "argv", command)
    return simulation.main()


def test_the_page_is_whole_needs_nothing_from_outside_and_leads_to_the_records(
    results, monkeypatch, tmp_path
):
    results.put(0, 0, {0: 0.1, 40: 0.8, 60: 1.0})
    results.put(1, 0, {0: 0.1, 10: 0.9}, rate=0.1)
    assert report(monkeypatch, tmp_path) == 0
    text = (tmp_path / "report.html").read_text()
    page = Page(text)
    assert not page.open
    said = " ".join(" ".join(page.text).split())
    assert "Made up & shown" in said
    assert "10.0 (5.0\N{MULTIPLICATION SIGN})" in said
    assert "Runs: 2 of 14" in said
    assert said.count("difference") == 1  # of the other column the paper has no number
    assert "python simulation.py run --task mnist-logistic" in said
    assert "url(" not in text
    assert "@import" not in text
    assert "<script" not in text
    pictures = [one for one in page.references if one.startswith("data:image/png;base64,")]
    assert len(pictures) == 6
    for one in pictures:
        content = base64.b64decode(one.partition(",")[2], validate=True)
        assert content.startswith(b"\x89PNG")
        assert min(struct.unpack(">II", content[16:24])) > 300
    others = set(page.references) - set(pictures)
    assert {one.removeprefix("#") for one in others if one.startswith("#")} <= page.anchors
    files = {one for one in others if not one.startswith("#")}
    assert files == {f"records/made-up/{path.name}" for path in results.records.iterdir()}
    assert {path.name for path in (tmp_path / "plots").iterdir()} == {
        "made-up-rounds.png", "made-up-bytes.png", "partition-iid.png", "partition-shards.png",
        "partition-classes.png", "partition-dirichlet.png",
    }  # fmt: skip


def test_a_figure_is_shown_with_its_numbers_data_and_command(
    results, monkeypatch, tmp_path, capsys
):
    path = tmp_path / FIGURES / "one.json"
    path.parent.mkdir()
    shutil.copy(ROOT / "results" / "plots" / "partition-iid.png", path.with_suffix(".png"))
    Figure(
        title="A figure", source="nobody, figure 1", command="python -m something",
        found=["the mean is 0.4 & less"], data={"theta": [0.0, 1.0]},
    ).write(path)  # fmt: skip
    assert report(monkeypatch, tmp_path) == 0
    page = Page((tmp_path / "report.html").read_text())
    said = " ".join(" ".join(page.text).split())
    assert "the mean is 0.4 & less" in said
    assert "python -m something" in said
    assert {"figures/one.json", "#one"} <= set(page.references)
    assert "one" in page.anchors
    path.with_suffix(".png").unlink()
    assert report(monkeypatch, tmp_path) == 1
    assert f"error: figure = '{path}': there is no one.png" in capsys.readouterr().err
    path.write_text("{")
    assert report(monkeypatch, tmp_path) == 1
    assert f"error: figure = '{path}': is not a figure" in capsys.readouterr().err


def test_without_records_the_page_says_so_and_the_same_records_give_the_same_page(
    results, monkeypatch, tmp_path
):
    assert report(monkeypatch, tmp_path) == 0
    first = (tmp_path / "report.html").read_text()
    assert len(re.findall(r"^not run$", first, re.MULTILINE)) == 4  # a cell each
    assert "Runs: 0 of 14" in first
    assert report(monkeypatch, tmp_path, "--output", str(tmp_path / "again.html")) == 0
    assert (tmp_path / "again.html").read_text() == first


@pytest.mark.parametrize(
    ("arguments", "fragment"),
    [
        (["--experiments=/none"], "error: experiments = '/none': has no experiments; give"),
        (["--output=/dev/null/page.html"], "error: output = '/dev/null/page.html': cannot write"),
        (["--data-dir=/none"], "error: data-dir = '/none' is not a directory"),
    ],
)
def test_bad_input_is_one_line_and_a_nonzero_exit(
    results, monkeypatch, capsys, tmp_path, arguments, fragment
):
    assert report(monkeypatch, tmp_path, *arguments) == 1
    error = capsys.readouterr().err
    assert fragment in error
    assert len(error.strip().splitlines()) == 1
