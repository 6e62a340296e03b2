"""Why a reply is not used, in one short line whatever the client put into it."""

import re
from collections.abc import Sequence

from flwr.app import Error

MAX_REASON = 200
SMALLER_RATES = "give smaller rates in strategy-args"  # what helps where a model is not finite
MAX_TRACEBACK = 4000
MAX_FILE, MAX_LINE_NUMBER = 80, 9
# Files that are not the user's: installed packages, Python's own, and what carries messages here.
LIBRARY = re.compile(r"/(site|dist)-packages/|/lib/python3|/fedavg_app/|^<")
# Our clients' errors, as RayGrid, a SuperNode and Flower's simulation pass them on.
PLACED = re.compile(
    r"(?:ClientFailedError(?:: |'>:<')|Exception ClientAppException occurred\. Message: )"
    r"(.+) \(([^()]+), line (\d+)\)(?:'>)?$"
)


class ReplyError(ValueError):
    """A reply that must not be used; the message is the reason.

    It is one short line whatever the client put into it, for logs and the history.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(shorten(printable(" ".join(reason.split()))))


class ResyncError(ReplyError):
    """A reply of a client that lost its state; it gets the full model in its next round."""


class DivergedReplyError(ReplyError):
    """A reply whose training diverged: its values are NaN, infinite or out of range."""


class NormError(ReplyError):
    """A reply whose update is longer than ``max-update-norm``."""


def error_reason(error: Error) -> str:
    """Return the last line of an error's reason, and where its traceback ends if it has one.

    Our own clients' line has the place in it, whatever Flower and Ray put around the line.
    """
    # Clients choose the text, and the pattern's time grows with the square of its length.
    text = (error.reason or "")[-MAX_TRACEBACK:]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        return f"error {error.code}: no reason given"
    if placed := PLACED.search(lines[-1]):
        text, file, number = placed.groups()
    else:
        text = lines[-1]
        places = re.findall(r'^File "([^"]+)", line (\d+)', "\n".join(lines), re.MULTILINE)
        if not places:
            return shorten(text)
        file, number = choose_place(places)
    if len(file) > MAX_FILE:  # its end tells more than its beginning
        file = f"...{file[3 - MAX_FILE :]}"
    place = f" ({file}, line {shorten(number, MAX_LINE_NUMBER)})"
    return shorten(text, MAX_REASON - len(place)) + place


def choose_place(places: Sequence[tuple[str, str]]) -> tuple[str, str]:
    """Return the last (file, line) of a traceback that is not a library's, if there is one."""
    own = [place for place in places if not LIBRARY.search(place[0])]
    return (own or places or [("?", "0")])[-1]


def printable(text: str) -> str:
    """Return the text with a "?" for each character that is not printable, such as escapes."""
    return "".join(character if character.isprintable() else "?" for character in text)


def shorten(text: str, length: int = MAX_REASON) -> str:
    """Return the text, cut to ``length`` characters."""
    return text if len(text) <= length else text[: length - 3] + "..."
