"""Relative links of the documents lead to files, and their anchors to headings of those files."""

import re
from collections import Counter
from urllib.parse import unquote

import pytest

from tests.support.documents import BLOCK, DOCUMENTS, ROOT

LINKING = [*DOCUMENTS, *sorted((ROOT / "docs" / "api").glob("*.md")), ROOT / "CHANGELOG.md"]
# [text](target) or ![text](target "title"); [name]: target on a line of its own
LINK = re.compile(r"\]\(<?([^)>\s]+)>?(?:\s+\"[^\"]*\")?\)|^\[[^\]]+\]:\s+(\S+)", re.MULTILINE)
ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:")
CODE = re.compile(r"``.+?``|`[^`\n]+`")
HEADING = re.compile(r"^#{1,6}\s+(.+?)\s*#*$", re.MULTILINE)
# A heading's "[text](target)" counts with its text only, and so does *emphasis*.
MARKUP = re.compile(r"\[([^\]]*)\]\([^)]*\)|[*`]")


def links(text):
    """Return the targets of the links outside of code, without those that leave the repository."""
    prose = CODE.sub("code", BLOCK.sub("", text))
    targets = [first or second for first, second in LINK.findall(prose)]
    return [unquote(target) for target in targets if not ELSEWHERE.match(target)]


def anchors(text):
    """Return the anchors of the headings, as GitHub and the site make them."""
    found, before = set(), Counter()
    for heading in HEADING.findall(BLOCK.sub("", text)):
        plain = re.sub(r"[^\w\s-]", "", MARKUP.sub(r"\1", heading)).strip().lower()
        anchor = re.sub(r"\s", "-", plain)
        found.add(f"{anchor}-{before[anchor]}" if before[anchor] else anchor)
        before[anchor] += 1
    return found


def dead_links(document):
    """Return the links of a document that lead nowhere."""
    return [
        link for link in links(document.read_text(encoding="utf-8")) if not leads(link, document)
    ]


def leads(link, document):
    path, _, anchor = link.partition("#")
    target = document.parent / path if path else document
    if path.startswith("/") or not target.exists():
        return False
    if not anchor or "." in anchor:  # the anchor of a Python object: the site's build checks it
        return True
    return target.suffix == ".md" and anchor in anchors(target.read_text(encoding="utf-8"))


@pytest.mark.parametrize("document", LINKING, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_to_files_and_headings(document):
    assert not dead_links(document)


def test_dead_links_are_found(tmp_path):
    (tmp_path / "other.md").write_text("# A page's *title* and `code.py`\n\n## Twice\n## Twice\n")
    page = tmp_path / "page.md"
    page.write_text("""
# Here
[1](other.md) [2](other.md#a-pages-title-and-codepy) [3](other.md#twice-1) [4](#here)
[5](https://example.org/none.md) ![6](other.md "a title") `[7](none)` ``[8](none)``
```python
[9](none.md)  # not a link
```
[a](none.md) ![b](none.png) [c](other.md#none) [d](#none) [e](/other.md) [`f`](none/)

[g]: none.html
""")
    assert dead_links(page) == [
        "none.md", "none.png", "other.md#none", "#none", "/other.md", "none/", "none.html",
    ]  # fmt: skip
