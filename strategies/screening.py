"""What a server believes of a reply: nothing until it is checked.

A client may be broken or hostile. Every check here runs before a reply's numbers are used, costs
time and memory bounded by the *model's* size (never by what a header claims), and turns whatever
is wrong into one `ReplyError` with a one-line reason.
"""

import math
import sys
from collections.abc import Callable, Iterable
from statistics import fmean

import numpy as np
from flwr.app import Array, ArrayRecord, Error, Message, MetricRecord
from numpy.typing import NDArray

from strategies.aggregation import Arrays, l2_norm
from strategies.arrays import from_record, read_header, read_values
from strategies.limits import Limits
from strategies.records import find, get

ARRAYS = "arrays"
METRICS = "metrics"
CONFIG = "config"
NUM_EXAMPLES = "num-examples"
# Up to here floats count exactly, and sums over any cohort stay finite.
MAX_EXAMPLES = 2**53
LARGEST = sys.float_info.max


class ReplyError(ValueError):
    """A reply that must not be used; the message is the reason, in one line."""


def screen(
    replies: Iterable[Message], check: Callable[[Message], object], at_least: int = 1
) -> tuple[list[Message], dict[int, str]]:
    """Split replies into those that pass ``check`` and the reasons, by node id, for the others.

    A reply that carries an error (the client raised) is rejected with that error's reason. Of two
    replies from one node the second is rejected: no node counts twice in a round. Where fewer than
    ``at_least`` pass, they are rejected too.
    """
    accepted: list[Message] = []
    rejected: dict[int, str] = {}
    seen: set[int] = set()
    for reply in replies:
        node = reply.metadata.src_node_id
        try:
            if reply.has_error():
                raise ReplyError(error_reason(reply.error))
            if node in seen:
                raise ReplyError("a second reply from the same node")
            check(reply)
        except ReplyError as reason:
            # Whatever a client named its arrays must not forge lines of the log, nor flood it.
            rejected[node] = _shorten(" ".join(str(reason).split()))
        else:
            accepted.append(reply)
        seen.add(node)
    if len(accepted) < at_least:
        too_few = f"too few usable replies: {len(accepted)}, min-replies is {at_least}"
        return [], rejected | {reply.metadata.src_node_id: too_few for reply in accepted}
    return accepted, rejected


def check_metrics(reply: Message, limits: Limits) -> None:
    """Check that the reply states its number of examples, within the limit.

    Raises:
        ReplyError: As for `num_examples`, or n_k is above ``limits.max_examples``.
    """
    examples, most = num_examples(reply), limits.max_examples
    if examples > most:
        raise ReplyError(f"{NUM_EXAMPLES} is {examples:.15g}, max-examples is {most}")


def check_update(
    reply: Message, expected: ArrayRecord, limits: Limits, origin: ArrayRecord | None
) -> Arrays:
    """Check a dense reply, its metrics and its record "arrays"; return the arrays.

    Args:
        reply: What a client sent.
        expected: The names, shapes and dtypes that its arrays must have.
        limits: What its numbers must keep to.
        origin: What the client's update is the difference to: the model that was sent; None where
            it sends the update itself.

    Raises:
        ReplyError: As for `check_metrics`, `read_arrays` and `check_norm`.
    """
    check_metrics(reply, limits)
    arrays = read_arrays(reply, expected)
    if limits.bound_norms:
        check_norm(l2_norm(arrays, None if origin is None else from_record(origin)), limits)
    return arrays


def check_norm(norm: float, limits: Limits) -> None:
    """Check the L2 norm of an update.

    Raises:
        ReplyError: It is above ``limits.max_update_norm``.
    """
    most = limits.max_update_norm
    if norm > most:
        raise ReplyError(f"the update's norm is {norm:g}, max-update-norm is {most:g}")


def num_examples(reply: Message) -> float:
    """Return n_k, the number of examples the reply's node trained or evaluated on.

    Raises:
        ReplyError: No record "metrics", or "num-examples" missing or not between 1 and 2^53.
    """
    record = find(reply.content, METRICS, MetricRecord)
    if record is None:
        raise ReplyError(f"no MetricRecord {METRICS!r} (has: {_names(reply)})")
    value = record.get(NUM_EXAMPLES)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ReplyError(f"{NUM_EXAMPLES} is {_shorten(repr(value), 40)}, not a number")
    if not 1 <= value <= MAX_EXAMPLES:  # NaN too
        raise ReplyError(f"{NUM_EXAMPLES} is {value}, must be at least 1 and at most 2^53")
    return float(value)


def read_arrays(reply: Message, expected: ArrayRecord) -> Arrays:
    """Return the reply's record "arrays" as NumPy arrays, by name in the order of ``expected``.

    Raises:
        ReplyError: A missing record, other names, shapes or dtypes, NaN or infinite values.
    """
    record = find(reply.content, ARRAYS, ArrayRecord)
    if record is None:
        raise ReplyError(f"no ArrayRecord {ARRAYS!r} (has: {_names(reply)})")
    if set(record) != set(expected):
        difference = sorted(set(record) ^ set(expected))
        raise ReplyError(f"array names differ from the model's: {_shorten(', '.join(difference))}")
    return {name: _read_array(name, record[name], like) for name, like in expected.items()}


def _read_array(name: str, array: Array, like: Array) -> NDArray[np.generic]:
    """Return one array without allocating what its header claims before that is checked."""
    shape, dtype = tuple(like.shape), np.dtype(like.dtype)
    try:
        header = read_header(array)
        if header.dtype != dtype or header.shape != shape:
            found = f"{header.dtype}{list(header.shape)}"
            raise ValueError(f"is {found}, expected {dtype}{list(shape)}")
        values = read_values(array, header)
    except ValueError as error:
        raise ReplyError(f"array {name!r} {error}") from error
    if not np.isfinite(values).all():
        raise ReplyError(f"array {name!r} has NaN or infinite values")
    return values


def mean_metrics(replies: Iterable[Message]) -> MetricRecord:
    """Return the n_k-weighted mean of every scalar metric that all (checked) replies carry."""
    checked = list(replies)
    weights = [num_examples(reply) for reply in checked]
    records = [common_metrics(reply) for reply in checked]
    mean = MetricRecord()
    if not records:
        return mean
    total = sum(weights)
    for key in records[0]:
        if key != NUM_EXAMPLES and all(key in record for record in records):
            pairs = zip(weights, records, strict=True)
            mean[key] = sum(weight / total * record[key] for weight, record in pairs)
    return mean


def accuracy_spread(replies: Iterable[Message]) -> MetricRecord:
    """Return how the (checked) clients' accuracies differ: means alone hide who is left behind.

    "accuracy-mean" counts all clients alike; below "accuracy-p10" are a tenth of them. Empty where
    a reply states no accuracy, or one that is none.
    """
    found = [common_metrics(reply).get("accuracy", math.nan) for reply in replies]
    if not found or not all(0 <= accuracy <= 1 for accuracy in found):
        return MetricRecord()
    tenth = float(np.percentile(found, 10))
    return MetricRecord({"accuracy-mean": fmean(found), "accuracy-p10": tenth})


def common_metrics(reply: Message) -> dict[str, float]:
    """Return the reply's finite scalar metrics by name (lists and NaN are left out)."""
    record = get(reply.content, METRICS, MetricRecord)
    return {
        key: float(value)
        for key, value in record.items()
        if isinstance(value, int | float) and -LARGEST <= value <= LARGEST  # not NaN, nor infinite
    }


def _names(reply: Message) -> str:
    return _shorten(", ".join(reply.content)) or "nothing"


def error_reason(error: Error) -> str:
    """Return the last line of an error's reason: Flower puts the whole traceback into it."""
    lines = [line.strip() for line in (error.reason or "").splitlines() if line.strip()]
    return f"error {error.code}: {_shorten(lines[-1]) if lines else 'no reason given'}"


def _shorten(text: str, length: int = 200) -> str:
    return text if len(text) <= length else text[: length - 3] + "..."
