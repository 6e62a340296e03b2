import base64
import re
import shutil
import struct
from html.parser import HTMLParser
from pathlib import Path

import pytest

from fedavg_app.errors import ConfigError
from paper.figures import FIGURES, Figure
from paper.report import write_report
from tasks.data.dataset import DataError
from tests.support import idx_files

ROOT = Path(__file__).parents[3]


class Page(HTMLParser):
    """The parts of a page: elements that are not closed, references, anchors, text."""

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


@pytest.fixture
def _one_partition(monkeypatch):
    """Draw one partition only: drawing is what takes the time."""
    monkeypatch.setattr("paper.report.PARTITIONS", (("iid", ""),))


def report(folder, output="report.html"):
    """Write the report of the folder's results, with partitions of 2,000 images of noise."""
    data = folder / "mnist"
    if not data.is_dir():
        data.mkdir()
        idx_files.write(data, train=2000)
    write_report(folder / "experiments", folder, folder / output, str(data))


def test_page_is_well_formed_self_contained_and_links_to_records(results, tmp_path):
    results.add(0, 0, {0: 0.1, 40: 0.8, 60: 1.0})
    results.add(1, 0, {0: 0.1, 10: 0.9}, rate=0.1)
    report(tmp_path)
    text = (tmp_path / "report.html").read_text()
    page = Page(text)
    assert not page.open
    said = " ".join(" ".join(page.text).split())
    assert "Made up & shown" in said
    assert "10.0 (5.0\N{MULTIPLICATION SIGN})" in said
    assert "Runs: 2 of 14" in said
    assert said.count("difference") == 1  # for the other column the paper has no number
    assert "python simulation.py run --task mnist-logistic" in said
    assert "url(" not in text
    assert "@import" not in text
    assert "<script" not in text
    pictures = [one for one in page.references if one.startswith("data:image/png;base64,")]
    assert len(pictures) == 5
    for one in pictures:
        content = base64.b64decode(one.partition(",")[2], validate=True)
        assert content.startswith(b"\x89PNG")
        assert min(struct.unpack(">II", content[16:24])) > 300
    others = set(page.references) - set(pictures)
    assert {one.removeprefix("#") for one in others if one.startswith("#")} <= page.anchors
    files = {one for one in others if not one.startswith("#")}
    assert files == {f"records/made-up/{path.name}" for path in results.records.iterdir()}
    assert {path.name for path in (tmp_path / "plots").iterdir()} == {
        "made-up-rounds.png", "partition-iid.png", "partition-shards.png",
        "partition-classes.png", "partition-dirichlet.png",
    }  # fmt: skip


@pytest.mark.usefixtures("_one_partition")
def test_curves_of_runs_with_local_steps_are_against_iterations(results, tmp_path):
    results.edit("local-epochs = 1", "local-steps = 1")
    results.edit("local-epochs = 5", "local-steps = 400")
    results.add(0, 0, {0: 0.1, 100: 0.9})
    report(tmp_path)
    assert {path.name for path in (tmp_path / "plots").glob("made-up-*")} == {
        "made-up-iterations.png",
        "made-up-bytes.png",
    }
    assert "against iterations" in (tmp_path / "report.html").read_text()


@pytest.mark.usefixtures("_one_partition")
def test_figure_is_shown_with_its_numbers_data_and_command(results, tmp_path):
    path = tmp_path / FIGURES / "one.json"
    path.parent.mkdir()
    shutil.copy(ROOT / "results" / "plots" / "partition-iid.png", path.with_suffix(".png"))
    Figure(
        title="A figure", source="nobody, figure 1", command="python -m something",
        found=["the mean is 0.4 & less"], data={"theta": [0.0, 1.0]},
    ).write(path)  # fmt: skip
    report(tmp_path)
    page = Page((tmp_path / "report.html").read_text())
    said = " ".join(" ".join(page.text).split())
    assert "the mean is 0.4 & less" in said
    assert "python -m something" in said
    assert {"figures/one.json", "#one"} <= set(page.references)
    assert "one" in page.anchors


@pytest.mark.usefixtures("_one_partition")
def test_page_without_records_shows_all_cells_as_not_run_and_is_repeatable(results, tmp_path):
    report(tmp_path)
    first = (tmp_path / "report.html").read_text()
    assert len(re.findall(r"^\u2013$", first, re.MULTILINE)) == 4  # one in each cell
    assert "Runs: 0 of 14" in first
    report(tmp_path, "again.html")
    assert (tmp_path / "again.html").read_text() == first


@pytest.mark.usefixtures("_one_partition")
def test_experiments_without_a_papers_numbers_come_last(results, tmp_path):
    text = (tmp_path / "experiments" / "made-up.toml").read_text()
    without = "\n".join(line for line in text.splitlines() if not line.startswith("paper"))
    own = without.replace("Made up & shown", "Our own")
    assert own.count("Our own") == 1
    (tmp_path / "experiments" / "a-first-name.toml").write_text(own)
    report(tmp_path)
    page = (tmp_path / "report.html").read_text()
    assert page.index("Made up &amp; shown") < page.index("Our own")


@pytest.mark.usefixtures("_one_partition")
def test_page_says_how_long_runs_took_and_missing_ones_would_take(results, tmp_path):
    results.edit("others = [25", "hours = [0.5, 3]\nothers = [25")
    results.add(0, 0, {0: 0.1, 40: 0.8, 60: 1.0}, seconds=90)
    results.add(1, 0, {0: 0.1, 10: 0.9}, rate=0.1, seconds=5400)
    report(tmp_path)
    said = " ".join(" ".join(Page((tmp_path / "report.html").read_text()).text).split())
    # 1.5 h and 1.5 min; missing are 5 of 6 runs with 0.5 h, 6 of 6 with 3 h, and 1 without hours.
    assert "The runs took 1.5 h in all." in said
    assert "The missing ones would take about 20 h; of 1 more there is no estimate." in said
    assert "All runs, one after the other, took 1.5 h" in said


def test_folder_without_experiments_is_rejected(tmp_path):
    with pytest.raises(ConfigError, match="experiments = '/none': has no experiments; give"):
        write_report(Path("/none"), tmp_path, tmp_path / "report.html")


def test_unwritable_page_is_reported(results, tmp_path):
    with pytest.raises(ConfigError, match=r"output = '/dev/null/page\.html': cannot write"):
        report(tmp_path, "/dev/null/page.html")


def test_missing_data_directory_is_reported(results, tmp_path):
    with pytest.raises(DataError, match="data-dir = '/none' is not a directory"):
        write_report(tmp_path / "experiments", tmp_path, tmp_path / "report.html", "/none")
