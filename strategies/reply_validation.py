"""Validation of client replies: reports, metrics and norms; `server_messages` reads the arrays.

A client may be faulty or hostile. Every check costs time and memory bounded by the size of the
model, never by what a header claims.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from flwr.app import Error

ARRAYS = "arrays"
METRICS = "metrics"
CONFIG = "config"
NUM_EXAMPLES = "num-examples"
ACCURACY = "accuracy"
# What clients add to every gradient of local SGD, by array; only some strategies set it.
GRADIENT_OFFSET = "gradient-offset"
MAX_REASON = 200
MAX_TRACEBACK = 4000
MAX_FILE, MAX_LINE_NUMBER = 80, 9
# No real loss or count is near this; a larger value of one client would dominate the mean.
MAX_METRIC = 1e12
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


@dataclass(frozen=True)
class ReplyBounds:
    """Upper bounds on the numbers of a reply.

    Attributes:
        max_examples: The most examples that a client may report, and so its largest weight in a
            mean.
        max_update_norm: The largest L2 norm of a client's update, over all arrays together.
        exact: Whether n_k counts examples, at least 1, and arrays have the model's dtypes; else n_k
            is any weight above 0, and trained arrays have any dtype of floating-point numbers, as
            other apps' replies may.
    """

    max_examples: int = 10**9
    max_update_norm: float = math.inf
    exact: bool = True


@dataclass(frozen=True)
class ClientReport:
    """What a valid reply reports of its client's work.

    Attributes:
        node_id: The node that sent it.
        num_examples: n_k, the number of local examples.
        metrics: Its other usable scalar metrics by name, for example "train-loss".
        unusable: The names of the scalar metrics that are not usable (`is_usable`).
        lists: The metrics that are lists, if the bounds are not exact.
    """

    node_id: int
    num_examples: float
    metrics: Mapping[str, float] = field(default_factory=dict)
    unusable: tuple[str, ...] = ()
    lists: Mapping[str, Sequence[float]] = field(default_factory=dict)


def report_of(
    node_id: int,
    entries: Mapping[str, object],
    bounds: ReplyBounds,
    weighted_by: str = NUM_EXAMPLES,
) -> ClientReport:
    """Return the numbers among the metrics of a node's reply.

    Args:
        node_id: The node.
        entries: Its metrics.
        bounds: Their bounds.
        weighted_by: The name of the metric that is n_k.

    Raises:
        ReplyError: n_k is missing, not a number, below 1 or above ``bounds.max_examples``.
    """
    examples = entries.get(weighted_by)
    if isinstance(examples, bool) or not isinstance(examples, int | float):
        raise ReplyError(f"{weighted_by} is a {type(examples).__name__}, not a number")
    if not (examples >= 1 or (examples > 0 and not bounds.exact)):  # NaN too
        least = "at least 1" if bounds.exact else "above 0"
        raise ReplyError(f"{weighted_by} is {examples}, must be {least}")
    if examples > bounds.max_examples:
        raise ReplyError(f"{weighted_by} is {examples:.15g}, max-examples is {bounds.max_examples}")
    scalars = {
        key: value
        for key, value in entries.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and key != weighted_by
    }
    metrics = {key: float(value) for key, value in scalars.items() if is_usable(key, value)}
    unusable = tuple(key for key in scalars if key not in metrics)
    lists = {key: entry for key, entry in entries.items() if isinstance(entry, list)}
    return ClientReport(node_id, float(examples), metrics, unusable, {} if bounds.exact else lists)


def is_usable(name: str, value: float) -> bool:
    """Return whether a client's metric may be part of a mean over clients.

    It is finite, no further from 0 than `MAX_METRIC`, and an accuracy is from 0 to 1.
    """
    if name == ACCURACY:
        return 0 <= value <= 1
    return -MAX_METRIC <= value <= MAX_METRIC  # NaN is not


def check_norm(norm: float, bounds: ReplyBounds) -> None:
    """Check the L2 norm of an update; NormError if it is above ``bounds.max_update_norm``."""
    if not norm <= bounds.max_update_norm:  # NaN too
        raise NormError(
            f"the update's norm is {norm:g}, max-update-norm is {bounds.max_update_norm:g}"
        )


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
