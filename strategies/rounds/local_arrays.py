"""Arrays of the model that stay on the clients, such as a personal head.

On the client the handler gets a complete model with the client's own values, and what it returns of
them is kept there. In another app the server sends their initial values once, beside the model; in
this project's app clients have them from the task (`fedavg_app.client.mods`).

Without the argument ``local_arrays`` a client may put arrays of its own over those it received.
What it then reports as its change takes back what the server sent, error feedback adds that up, and
the model grows until it is of no use. `taken_back` finds such an array.
"""

import secrets
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import cast

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message
from flwr.clientapp.typing import ClientAppCallable

from .aggregation import finite_or_sent
from .flower_arrays import array_record, find_record, from_record, get_record
from .messages import PLACES, VALUES, named_or_only
from .model import Model, Vector

# By how many times what training returned of an array its change may exceed that before the server
# warns, and before the reply is rejected. Without arrays kept it is below 1.5 in runs of STC and
# top-k with p from 1/20 to 1/400, and below 1 after ten rounds.
WARN_ABOVE, REJECT_ABOVE = 2.0, 4.0


def matching(names: Sequence[str], patterns: Sequence[str]) -> list[str]:
    """Return the names that match any of the patterns, such as "head.*"."""
    return [name for name in names if any(fnmatchcase(name, pattern) for pattern in patterns)]


class KeptArrays:
    """The server's part: the arrays of a model that do not travel, with their initial values.

    Args:
        patterns: Names of arrays, or patterns.

    Attributes:
        initial: Their initial values.
    """

    def __init__(self, patterns: Sequence[str]) -> None:
        self._patterns = patterns
        self.initial = ArrayRecord()
        self._places: dict[str, int] = {}
        self._training = secrets.randbits(31)  # tells clients that another training has begun
        self._keeping = set[int]()  # the nodes that have their local arrays

    def __bool__(self) -> bool:
        return bool(self._places)

    def travelling(self, arrays: ArrayRecord) -> ArrayRecord:
        """Return the arrays that travel.

        Raises:
            ValueError: A pattern matches none, or all match.
        """
        names = list(arrays)
        for pattern in self._patterns:
            if not matching(names, [pattern]):
                there = ", ".join(names)
                raise ValueError(f"local_arrays: {pattern!r} matches no array; there are: {there}")
        local = matching(names, self._patterns)
        if local and len(local) == len(names):
            raise ValueError(f"local_arrays = {self._patterns}: nothing would be sent; give fewer")
        self._places = {name: place for place, name in enumerate(names) if name in local}
        if not local:
            return arrays
        self.initial = array_record({name: arrays[name] for name in local})
        return array_record({name: arrays[name] for name in names if name not in local})

    def completed(self, sent: ArrayRecord) -> ArrayRecord:
        """Return the model with the initial values of the arrays that do not travel."""
        return complete(sent, self.initial, self._places) if self else sent

    def records(self, node: int, key: str) -> dict[str, ArrayRecord | ConfigRecord]:
        """Return what a message tells a node; ``key`` is the name of its record of arrays."""
        if not self:
            return {}
        told = told_of(self._places, key, self._training)
        return {PLACES: told} if node in self._keeping else {PLACES: told, VALUES: self.initial}

    def note(self, used: Iterable[int], rejected: Iterable[int]) -> None:
        """Note the nodes whose replies were used, and so have values, and those rejected."""
        self._keeping = (self._keeping | set(used)) - set(rejected)


def told_of(places: Mapping[str, int], key: str, training: int = 0) -> ConfigRecord:
    """Return what a client is told: the local arrays with their places among all arrays."""
    told = ConfigRecord({"training": training, "record": key})
    told["names"], told["places"] = list(places), list(places.values())
    return told


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
