"""What a client reports beside its arrays, n_k and metrics, and the bounds on these numbers."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from strategies.messages import ACCURACY, NUM_EXAMPLES
from strategies.reply_errors import ReplyError

# No real loss or count is near this; a larger value of one client would dominate the mean.
MAX_METRIC = 1e12


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
