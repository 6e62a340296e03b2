import base64
import json
import struct
from html.parser import HTMLParser

from paper.report import write_report
from tests.support.made_up_results import MadeUpResults

PNG = b"\x89PNG" + bytes(12) + struct.pack(">II", 400, 301)


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


def figure(folder):
    """Record a figure that no table gives."""
    (folder / "figures").mkdir()
    (folder / "figures" / "one.png").write_bytes(PNG)
    content = {"title": "One", "source": "nobody", "found": ["a number"]}
    content["pictures"] = {"one.png": "1"}
    (folder / "figures" / "one.json").write_text(json.dumps(content))


def test_page_is_well_formed_self_contained_and_links_to_records(tmp_path):
    results = MadeUpResults(tmp_path)
    results.add(0, 0, {0: 0.1, 40: 0.8, 60: 1.0})
    results.add(1, 0, {0: 0.1, 10: 0.9}, rate=0.1)
    figure(tmp_path)
    text = write_report(tmp_path / "experiments", tmp_path).read_text()
    page = Page(text)
    assert not page.open
    said = " ".join(" ".join(page.text).split())
    assert "Made up & shown" in said
    assert "10.0 (5.0\N{MULTIPLICATION SIGN})" in said
    assert "Runs: 2 of 14" in said
    assert said.count("difference") == 1  # for the other column the paper has no number
    assert "python simulation.py run --task mnist-logistic" in said
    assert not [word for word in ("url(", "@import", "<script") if word in text]
    pictures = [link for link in page.references if link.startswith("data:image/png;base64,")]
    assert len(pictures) == 2
    for picture in pictures:
        content = base64.b64decode(picture.partition(",")[2], validate=True)
        assert content.startswith(b"\x89PNG")
        assert min(struct.unpack(">II", content[16:24])) > 300
    others = set(page.references) - set(pictures)
    assert {link.removeprefix("#") for link in others if link.startswith("#")} <= page.anchors
    files = {link for link in others if not link.startswith("#")}
    assert files == {f"records/made-up/{path.name}" for path in results.records.iterdir()}
    assert {path.name for path in (tmp_path / "plots").iterdir()} == {"made-up-1.png"}
