"""Numbers as text, in tables and on boards."""

import math
from collections.abc import Sequence

from paper.experiments import Entry, Measure

# The papers' symbols of the keys that are grids.
SYMBOLS = {"learning-rate": "\N{GREEK SMALL LETTER ETA}", "batch-size": "B", "local-epochs": "E"}
# Shown where there is no number.
NONE = "\N{EN DASH}"
MINUS = "\N{MINUS SIGN}"
TIMES = "\N{MULTIPLICATION SIGN}"


def number(value: float, kind: Measure) -> str:
    """Return a measured value as text: rounds, megabytes, minutes or an accuracy in [0, 1]."""
    if kind == "best-accuracy":
        return f"{100 * value:.1f} %"
    if kind == "rounds-to-target":
        return f"{value:.1f}" if value < 100 else f"{value:,.0f}"
    return f"{value:.3g}" if value < 1000 else f"{value:,.0f}"


def seeds(values: Sequence[float | None]) -> str:
    """Return how many seeds there are, or have a value, given what each has."""
    reached = sum(value is not None for value in values)
    if reached < len(values):
        return f"{reached} of {len(values)} seeds"
    return "one seed" if reached == 1 else f"{reached} seeds"


def spread(values: Sequence[float | None], kind: Measure) -> str:
    """Return how far the values of seeds lie apart."""
    found = [value for value in values if value is not None]
    lowest, highest = number(min(found), kind), number(max(found), kind)
    return lowest if lowest == highest else f"{lowest} to {highest}"


def entry(given: Entry | None, kind: Measure) -> str:
    """Return a paper's entry: a text as it is, a number with no more digits than it has."""
    if given is None or isinstance(given, str):
        return given or ""
    return f"{100 * given:.4g} %" if kind == "best-accuracy" else f"{given:,g}"


def times(ratio: float | None) -> str:
    """Return a ratio as text; empty for none."""
    return "" if ratio is None else f"{ratio:.1f}{TIMES}"


def more_than(ratio: float | None) -> str:
    """Return a bound from below, which is not to be rounded up."""
    return "" if ratio is None else f"> {times(math.floor(10 * ratio) / 10)}"


def signed(difference: float | None, kind: Measure) -> str:
    """Return a difference of accuracies, or a relative one; empty for none."""
    if difference is None:
        return ""
    points = kind == "best-accuracy"
    text = f"{100 * difference:+.{1 if points else 0}f} {'points' if points else '%'}"
    return text.replace("-", MINUS)
