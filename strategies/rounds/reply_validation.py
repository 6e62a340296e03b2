"""Validation of client replies: structure, shapes, dtypes, NaN, n_k, metrics, norms.

A client may be faulty or hostile. Every check costs time and memory bounded by the size of the
model, never by what a header claims.
"""

import math
from functools import cached_property
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord
from numpy.typing import NDArray

from .aggregation import finite_or_sent
from .flower_arrays import OPAQUE, find_record, from_array
from .messages import (
    ACCURACY,
    ARRAYS,
    BUFFERS,
    METRICS,
    NUM_EXAMPLES,
    OWN,
    PAYLOAD,
    named_or_only,
)
from .model import Arrays, Model, Vector, change_norm
from .reply_errors import DivergedReplyError, NormError, ReplyError, shorten
from .values import ClientReport, ReplyBounds

# No real loss or count is near this; a larger value of one client would dominate the mean.
MAX_METRIC = 1e12
MAX_DIGITS = 18  # of a round
NOT_FINITE = "array {!r} has NaN or infinite values"


class Reply:
    """A client's reply as the server reads it: every part is checked on access.

    Args:
        message: The reply, which has no error.
        model: The global model of the round.
        bounds: Bounds on its numbers.
        weighted_by: The name of the metric that is n_k.
        key: The name of the record of arrays.
    """

    def __init__(
        self,
        message: Message,
        model: Model,
        bounds: ReplyBounds,
        weighted_by: str = NUM_EXAMPLES,
        key: str = ARRAYS,
    ) -> None:
        self.message, self.node, self._key = message, message.metadata.src_node_id, key
        self._model, self._bounds, self._weighted_by = model, bounds, weighted_by

    @cached_property
    def server_round(self) -> int | None:
        """The round whose message this answers; None if messages do not name it.

        Raises:
            ReplyError: The reply does not name a round.
        """
        group = self.message.metadata.group_id
        if group and not (group.isdecimal() and len(group) < MAX_DIGITS):
            raise ReplyError(f"it answers the group {shorten(group)!r}, which is no round")
        return int(group) if group else None

    @cached_property
    def report(self) -> ClientReport:
        """The client's metrics; ReplyError as for `read_report`."""
        return read_report(self.message, self._bounds, self._weighted_by)

    @property
    def payload(self) -> bytes:
        """The payload; ReplyError if there is none."""
        record = find_record(self.message.content, OWN, ArrayRecord)
        if record is None:
            fix = "does the ClientApp have the strategy's mod, such as compression_mod?"
            raise ReplyError(f"no ArrayRecord {OWN!r}: {fix}")
        array = record.get(PAYLOAD)
        if array is None or array.stype != OPAQUE:
            raise ReplyError(f"no array {PAYLOAD!r} of type {OPAQUE!r} in the ArrayRecord {OWN!r}")
        return array.data

    @cached_property
    def vector(self) -> Vector:
        """The client's trained arrays as one vector of the model's layout.

        Raises:
            ReplyError: There are none, or they have other names, shapes or dtypes than the model's.
            DivergedReplyError: An array has NaN or infinite values that were not sent.
        """
        return self._vector(self._arrays, self._model.record)

    def vector_of(self, name: str) -> Vector:
        """Return an additional vector of the model's layout; ReplyError as for `vector`."""
        record = find_record(self.message.content, name := f"{OWN}.{name}", ArrayRecord)
        if record is None:
            raise ReplyError(f"no ArrayRecord {name!r}")
        if set(record) != set(self._model.layout.names):
            raise ReplyError(f"the names in {name!r} are not those of the model's trained arrays")
        return self._vector(record)

    @cached_property
    def buffers(self) -> Arrays:
        """The client's buffers; ReplyError as for `vector`."""
        expected = self._model.buffers
        if not expected:
            return {}
        record = find_record(self.message.content, BUFFERS, ArrayRecord)
        if record is None:
            record = self._arrays
        elif set(record) != set(expected):
            raise ReplyError(f"the names in {BUFFERS!r} are not those of the model's buffers")
        found = {}
        for name, sent in expected.items():
            found[name] = _read(name, record[name], sent.dtype, sent.shape)
            if not finite_or_sent(found[name], sent):
                raise DivergedReplyError(NOT_FINITE.format(name))
        return found

    @cached_property
    def _arrays(self) -> ArrayRecord:
        """The record of all arrays."""
        names = self._model.order
        _, record = named_or_only(self.message.content, self._key, ArrayRecord)
        if set(record) != set(names):
            different = shorten(", ".join(sorted(set(record) ^ set(names))))
            raise ReplyError(f"array names differ from the model's: {different}")
        return record

    def _vector(self, record: ArrayRecord, sent: ArrayRecord | None = None) -> Vector:
        """Return a record's trained arrays as one vector.

        Values that are not finite are those that were ``sent``.
        """
        layout, parts = self._model.layout, []
        expected = zip(layout.names, layout.shapes, layout.all_dtypes, strict=True)
        for name, shape, dtype in expected:
            values = _read(name, record[name], dtype, shape, self._bounds.exact)
            with np.errstate(over="ignore"):  # what becomes infinite is refused
                part = values.astype(layout.dtype, copy=False)
            if not finite_or_sent(part, None if sent is None else from_array(sent[name])):
                raise DivergedReplyError(NOT_FINITE.format(name))
            parts.append(part.reshape(-1))
        return np.concatenate(parts) if parts else np.empty(0, layout.dtype)


def read_report(
    message: Message, bounds: ReplyBounds, weighted_by: str = NUM_EXAMPLES
) -> ClientReport:
    """Return the numbers among the metrics of a reply.

    Args:
        message: The reply, which has no error.
        bounds: Their bounds.
        weighted_by: The name of the metric that is n_k.

    Raises:
        ReplyError: There are no metrics, or n_k is missing, not a number, below 1 (0 unless
            ``bounds.exact``) or above ``bounds.max_examples``.
    """
    _, entries = named_or_only(message.content, METRICS, MetricRecord)
    examples = entries.get(weighted_by)
    if isinstance(examples, bool) or not isinstance(examples, int | float):
        raise ReplyError(f"{weighted_by} is a {type(examples).__name__}, not a number")
    if not examples >= bounds.exact:  # NaN too
        raise ReplyError(f"{weighted_by} is {examples}, must be at least {bounds.exact:d}")
    if examples > bounds.max_examples:
        raise ReplyError(f"{weighted_by} is {examples:.15g}, max-examples is {bounds.max_examples}")
    scalars = {
        key: value
        for key, value in entries.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and key != weighted_by
    }
    metrics = {
        key: float(value)
        for key, value in scalars.items()
        if (is_usable(key, value) if bounds.exact else math.isfinite(value))
    }
    unusable = tuple(key for key in scalars if key not in metrics)
    lists = {key: entry for key, entry in entries.items() if isinstance(entry, list)}
    node, lists = message.metadata.src_node_id, {} if bounds.exact else lists
    return ClientReport(node, float(examples), metrics, unusable, lists)


def is_usable(name: str, value: float) -> bool:
    """Return whether a client's metric may be part of a mean over clients.

    It is finite, no further from 0 than `MAX_METRIC`, and an accuracy is from 0 to 1.
    """
    if name == ACCURACY:
        return 0 <= value <= 1
    return -MAX_METRIC <= value <= MAX_METRIC  # NaN is not


def check_norm(norm: float, buffers: Arrays, sent: Arrays, bounds: ReplyBounds) -> None:
    """Check the L2 norm of an update and of its buffers' change from those that were sent.

    Buffers of whole numbers, such as batch normalisation's counter, do not count.

    Raises:
        NormError: It is above ``bounds.max_update_norm``.
    """
    counted = (name for name, array in buffers.items() if array.dtype.kind in "fc")
    norm = math.hypot(norm, *(change_norm(buffers[name], sent[name]) for name in counted))
    if not norm <= bounds.max_update_norm:  # NaN too
        raise NormError(
            f"the update's norm is {norm:g}, max-update-norm is {bounds.max_update_norm:g}"
        )


def _read(
    name: str, array: Array, dtype: np.dtype[Any], shape: tuple[int, ...], exact: bool = True
) -> NDArray[np.generic]:
    """Return an array of a reply, checked for this dtype and shape.

    Unless ``exact``, it may have any dtype of real floating-point numbers.
    """
    try:
        if not exact:
            values = from_array(array)
            if values.shape == shape and values.dtype.kind == "f":
                return values
        return from_array(array, (dtype, shape))
    except ValueError as error:
        raise ReplyError(f"array {name!r} {error}") from error
