"""The papers' headline claims next to ours: the first table of the page."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedavg_app.errors import ConfigError
from paper.cell_text import entry, number, times
from paper.experiments import Measure
from paper.tables import Result

HEADLINES = "headlines.toml"
# Within so much of the paper's value a claim counts as reproduced: relative, and for accuracies in
# [0, 1] absolute.
CLOSE, CLOSE_ACCURACY = 0.1, 0.01

Mark = Literal["better", "reproduced", "worse", "not reached", "not run", "not comparable"]
Table = Sequence[Sequence[Result]]


class Claim(BaseModel):
    """One claim of a paper: a cell of an experiment.

    Attributes:
        claim: What is claimed, in words.
        source: Where.
        experiment: The experiment's name.
        row: The name of the cell's row.
        column: The name of its column.
        speedup: Whether the claim is of the speed-up, not of the value.
        paper: The paper's value as text, where it is of another model or of more iterations than
            ours.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    claim: str
    source: str
    experiment: str
    row: str
    column: str
    speedup: bool = False
    paper: str = ""


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    claims: Annotated[list[Claim], Field(min_length=1)]


@dataclass(frozen=True)
class Headline:
    """A claim as text, with ours.

    Attributes:
        claim: The claim.
        paper: The paper's value.
        ours: Ours; empty where there is none.
        spread: That of the seeds, or how far the run came.
        mark: How the two compare.
    """

    claim: Claim
    paper: str
    ours: str
    spread: str
    mark: Mark


def read_claims(path: Path) -> list[Claim]:
    """Return the claims in a file, none where there is no such file.

    Raises:
        ConfigError: It cannot be read.
    """
    if not path.is_file():
        return []
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
        return _File.model_validate(values).claims
    except (OSError, tomllib.TOMLDecodeError, ValidationError) as error:
        reason = " ".join(str(error).split())
        raise ConfigError("results", str(path), f"cannot be read: {reason}") from error


def headlines(
    claims: Sequence[Claim], tables: Mapping[str, tuple[Measure, Table]]
) -> list[Headline]:
    """Return the claims with ours.

    Args:
        claims: The claims.
        tables: What is measured, and the table, by the experiment's name.

    Raises:
        ConfigError: A claim names a cell that there is not.
    """
    found = []
    for claim in claims:
        measure, table = tables.get(claim.experiment, ("rounds-to-target", ()))
        cells = [
            (result, first)
            for row in table
            for result, first in zip(row, table[0], strict=True)
            if (result.cell.row.name, result.cell.column.name) == (claim.row, claim.column)
        ]
        if not cells:
            place = f"{claim.experiment}, {claim.row}, {claim.column}"
            raise ConfigError("claim", claim.claim, f"there is no cell {place}")
        found.append(_headline(claim, *cells[0], measure))
    return found


def _headline(claim: Claim, result: Result, first: Result, measure: Measure) -> Headline:
    """Return the claim with ours; speed-ups are over ``first``."""
    ours = result.speedup if claim.speedup else result.value
    theirs = result.paper_speedup if claim.speedup else result.paper
    if claim.speedup:
        shown, paper = times(ours), times(result.paper_speedup)
    else:
        shown, paper = "" if ours is None else number(ours, measure), entry(result.paper, measure)
    comparable = not claim.paper and isinstance(theirs, float | int)
    mark: Mark
    if ours is None:
        mark = "not reached" if result.done else "not run"
    elif not comparable:
        mark = "not comparable"
    else:
        assert isinstance(theirs, float | int)
        mark = compare(ours, float(theirs), measure, speedup=claim.speedup)
    return Headline(
        claim, claim.paper or paper, shown, _spread(claim, result, first, measure), mark
    )


def compare(ours: float, paper: float, measure: Measure, *, speedup: bool = False) -> Mark:
    """Return how a value compares with the paper's."""
    if measure == "best-accuracy" and not speedup:
        gain, close = ours - paper, CLOSE_ACCURACY
    else:
        change = ours / paper - 1
        gain, close = change if speedup else -change, CLOSE
    if abs(round(gain, 3 if measure == "best-accuracy" else 2)) <= close:  # as the page shows it
        return "reproduced"
    return "better" if gain > 0 else "worse"


def _spread(claim: Claim, result: Result, first: Result, measure: Measure) -> str:
    if result.value is None:
        accuracies = [one.record.summary["best-accuracy"] or 0.0 for one in result.done]
        rounds = [one.record.summary["rounds"] for one in result.done]
        return f"best {100 * max(accuracies):.1f} % in {max(rounds):,} rounds" if rounds else ""
    seeds = _seeds(result)
    if claim.speedup:
        of_first = _seeds(first)
        return seeds if seeds == of_first else f"{of_first} ({first.cell.row.name}) and {seeds}"
    if len(result.best) == 1 or result.low is None or result.high is None:
        return seeds
    low, high = number(result.low, measure), number(result.high, measure)
    return f"{seeds}: {low} to {high}"


def _seeds(result: Result) -> str:
    """Return how many seeds reached the target, and of how many."""
    total = len(result.best)
    reached = sum(one.value is not None for one in result.best)
    if total == reached == 1:
        return "one seed"
    return f"{reached} seeds" if reached == total else f"{reached} of {total} seeds"
