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
    found = links(document.read_text(encoding="utf-8"))
    assert not [link for link in found if not leads(link, document)]
