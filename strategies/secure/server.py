"""The server's end of a secure sum: who answered which stage, and the masks of the sum."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..compression.decoded_update import DecodeError
from ..rounds.reply_errors import ReplyError
from ..rounds.values import Aggregate
from .client import signer
from .identity import verify
from .messages import Stage, read_rows, threshold
from .primitives import KEY, Words, combine, pair_masks, public_key, self_mask

# Reads a client's answer; a ValueError if it is none.
Parse = Callable[[bytes], Any]


@dataclass
class Cohort:
    """The clients of a round, and what they have sent.

    Attributes:
        nodes: Their nodes, by place.
        seed: Of the positions of the round's numbers.
        scale: c of these numbers.
        answers: What each sent, by stage and place, but for the masked numbers.
    """

    nodes: Sequence[int]
    seed: int
    scale: float
    answers: dict[Stage, dict[int, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.places = {node: place for place, node in enumerate(self.nodes)}

    @property
    def threshold(self) -> int:
        """How many clients must answer each stage, t."""
        return threshold(len(self.nodes))

    def note(self, stage: Stage, node: int, data: bytes, parse: Parse) -> None:
        """Read a client's answer; ReplyError if it is none."""
        try:
            answer = parse(data)
        except ValueError as error:
            raise ReplyError(f"secure sum, stage {stage.name}: {error}") from error
        self.answers.setdefault(stage, {})[self.places[node]] = answer

    def left(self, stage: Stage, aggregate: Aggregate) -> list[int]:
        """Return the places of the clients that answered a stage; ReplyError if fewer than t."""
        if (left := len(aggregate.nodes)) < self.threshold:
            wanted = f"{self.threshold} of {len(self.nodes)} clients are needed, {left} answered"
            raise ReplyError(f"secure sum, stage {stage.name}: {wanted}")
        return sorted(self.places[node] for node in aggregate.nodes)

    def of(self, stage: Stage, aggregate: Aggregate) -> dict[int, Any]:
        """Return the answers to a stage by place; ReplyError as for `left`."""
        return {place: self.answers[stage][place] for place in self.left(stage, aggregate)}


def sized(data: bytes, size: int) -> bytes:
    """Return the bytes; DecodeError unless there are so many."""
    if len(data) != size:
        raise DecodeError(f"{len(data)} bytes, not {size}")
    return data


def rows_of(
    data: bytes, size: int, places: Collection[int], *, some: bool = False
) -> dict[int, bytes]:
    """Return rows for all of these places, or some; DecodeError for others."""
    rows = read_rows(data, size)
    if not rows.keys() <= set(places) or not (some or len(rows) == len(places)):
        raise DecodeError(f"rows for {len(rows)} clients, not for the {len(places)} there are")
    return rows


def valid(
    signatures: Mapping[int, bytes], rows: Mapping[int, bytes], text: bytes
) -> dict[int, bytes]:
    """Return the signatures of a text that are those of the clients with these rows of keys."""
    return {
        place: signature
        for place, signature in signatures.items()
        if verify(signer(rows[place]), signature, text)
    }


def masks_of(
    count: int,
    threshold: int,
    keys: Mapping[int, bytes],
    shared: Iterable[int],
    survivors: Collection[int],
    shares: Mapping[int, Mapping[int, bytes]],
) -> Words:
    """Return the masks in the sum of the survivors' numbers, modulo 2^32.

    Args:
        count: How many numbers a client sent.
        threshold: t.
        keys: The clients' rows of keys by place.
        shared: The places of the clients that shared their secrets.
        survivors: The places of those whose numbers arrived.
        shares: By the place of the client that reveals them, shares by place: of a survivor's own
            mask, of the secret behind the others' masks for a client that was lost.

    Raises:
        ReplyError: A secret lacks shares, or those of a lost client give another key than its own.
    """
    total = np.zeros(count, np.uint32)
    alive = {place: keys[place][:KEY] for place in survivors}
    for place in shared:
        known = {by: rows[place] for by, rows in shares.items() if place in rows}
        if len(known) < threshold:
            raise ReplyError(f"secure sum: {len(known)} shares of a secret, {threshold} are needed")
        secret = combine(dict(list(known.items())[:threshold]))
        if place in survivors:
            total += self_mask(secret, count)
        elif public_key(secret) == keys[place][:KEY]:
            total -= pair_masks(secret, place, alive, count)
        else:
            raise ReplyError("secure sum: the shares of a lost client's secret are wrong")
    return total
