"""Arrays of the model that stay on the clients of another app, such as a personal head.

The server sends their initial values once, beside the model. On the client the handler gets a
complete model with the client's own values, and what it returns of them is kept there.

Without the argument ``local_arrays`` a client may put arrays of its own over those it received.
What it then reports as its change takes back what the server sent, error feedback adds that up, and
the model grows until it is of no use. `taken_back` finds such an array.
"""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import cast

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message
from flwr.clientapp.typing import ClientAppCallable

from .aggregation import finite_or_sent
from .flower_arrays import array_record, find_record, from_record, get_record
from .messages import named_or_only
from .model import Model, Vector

# The records of a message, and of a client's state: the arrays' names and places, their values.
PLACES, VALUES = "fedavg-strategies.local-arrays", "fedavg-strategies.local-values"
# The record of a reply that names an array which the client seems to keep.
NOTE = "fedavg-strategies.note"
# By how many times what training returned of an array its change may exceed that before the server
# warns, and before the reply is rejected. Without arrays kept it is below 1.5 in runs of STC and
# top-k with p from 1/20 to 1/400, and below 1 after ten rounds.
WARN_ABOVE, REJECT_ABOVE = 2.0, 4.0


def matching(names: Sequence[str], patterns: Sequence[str]) -> list[str]:
    """Return the names that match any of the patterns, such as "head.*"."""
    return [name for name in names if any(fnmatchcase(name, pattern) for pattern in patterns)]


def places_of(names: Sequence[str], patterns: Sequence[str]) -> dict[str, int]:
    """Return the places among a model's arrays of those that match any of the patterns.

    Raises:
        ValueError: A pattern matches none, or all match.
    """
    for pattern in patterns:
        if not matching(names, [pattern]):
            there = ", ".join(names)
            raise ValueError(f"local_arrays: {pattern!r} matches no array; there are: {there}")
    local = matching(names, patterns)
    if local and len(local) == len(names):
        raise ValueError(f"local_arrays = {tuple(patterns)}: nothing would be sent; give fewer")
    return {name: place for place, name in enumerate(names) if name in local}


def complete(
    sent: Mapping[str, Array], local: Mapping[str, Array], places: Mapping[str, int]
) -> ArrayRecord:
    """Return the arrays that travel and those that do not, in the model's order."""
    names, arrays = list(sent), {**sent, **local}
    for name, place in places.items():
        names.insert(place, name)
    return array_record({name: arrays[name] for name in names})


def with_local_arrays(message: Message, call_next: ClientAppCallable) -> ClientAppCallable:
    """Take what a message says of local arrays out of it; return the handler that has them."""
    told = message.content.pop(PLACES, None)
    initial = message.content.pop(VALUES, None)
    if not isinstance(told, ConfigRecord):
        return call_next

    def handler(message: Message, context: Context) -> Message:
        own = find_record(context.state, VALUES, ArrayRecord)
        if context.state.get(PLACES) != told:  # a new client, or one of another training
            own = initial if isinstance(initial, ArrayRecord) else None
        if own is None:
            raise ValueError("this client lost its local arrays; the next message has them")
        key = str(told["record"])
        names, at = cast("list[str]", told["names"]), cast("list[int]", told["places"])
        sent = get_record(message.content, key, ArrayRecord)
        message.content[key] = complete(sent, own, dict(zip(names, at, strict=True)))
        reply = call_next(message, context)
        if reply.has_error() or not message.metadata.message_type.startswith("train"):
            return reply
        _, record = named_or_only(reply.content, key, ArrayRecord)
        kept, before = array_record({name: record.pop(name) for name in own}), from_record(own)
        if all(finite_or_sent(array, before[name]) for name, array in from_record(kept).items()):
            context.state[PLACES], context.state[VALUES] = told, kept
        return reply

    return handler


def taken_back(trained: Model, change: Vector) -> tuple[float, str]:
    """Return the largest ratio of an array's change to what training returned, and its name.

    Both are root mean squares; the second is at least that of the whole model, so that arrays near
    zero do not count. Weights that move by as much as they are large give at most 1. A client that
    keeps its own array gives ever more while the server's model grows.
    """

    def size(vector: Vector) -> float:
        return float(np.sqrt(np.square(vector, dtype=np.float64).mean()))

    vector = np.where(np.isfinite(trained.vector), trained.vector, 0)
    parts = zip(
        trained.layout.names,
        trained.layout.split(change),
        trained.layout.split(vector),
        strict=True,
    )
    least = size(vector) or np.inf
    return max((size(moved) / max(size(part), least), name) for name, moved, part in parts)


def advice(name: str) -> str:
    """Return what to do about an array that clients seem to keep."""
    pattern = f"{name.rpartition('.')[0]}.*" if "." in name else name
    return f"clients seem to keep their own array {name!r}: give local_arrays=({pattern!r},)"
