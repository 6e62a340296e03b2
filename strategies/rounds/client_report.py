"""What clients report beside their arrays: n_k and metrics, and a round's means of them.

`reply_validation` checks a report. A metric counts if most valid replies of the round name it: a
single client can neither remove a metric nor add its own. Its mean is over the clients whose value
is usable (`reply_validation.is_usable`); `partial_metrics` says how many there are.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from flwr.app import MetricRecord


@dataclass(frozen=True)
class ReplyBounds:
    """Upper bounds on the numbers of a reply.

    Attributes:
        max_examples: The most examples that a client may report, and so its largest weight in a
            mean.
        max_update_norm: The largest L2 norm of a client's update, over all arrays together.
        exact: Whether n_k counts examples, at least 1, metrics are within
            `reply_validation.is_usable`, and arrays have the model's dtypes; else n_k is any weight
            from 0, metrics are any finite numbers, and trained arrays have any dtype of
            floating-point numbers, as other apps' replies may.
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
        unusable: The names of the scalar metrics that `reply_validation.is_usable` refuses.
        lists: The metrics that are lists, if the bounds are not exact.
    """

    node_id: int
    num_examples: float
    metrics: Mapping[str, float] = field(default_factory=dict)
    unusable: tuple[str, ...] = ()
    lists: Mapping[str, Sequence[float]] = field(default_factory=dict)


def mean_metrics(reports: Sequence[ClientReport]) -> MetricRecord:
    """Return the round's metrics: means weighted by n_k over the clients with a usable value.

    Metrics that are lists are averaged entry by entry, if all clients' lists have the same length.
    A metric without any usable value is left out. No sum overflows: each term is a usable value
    times a weight of at most 1.
    """
    means = MetricRecord()
    for name in _names(reports):
        usable = [report for report in reports if name in report.metrics]
        total = sum(report.num_examples for report in usable)
        if total:
            means[name] = sum(
                report.num_examples / total * report.metrics[name] for report in usable
            )
    for name, first in (reports[0].lists if reports else {}).items():
        rows = [report.lists.get(name, []) for report in reports]
        weights = [report.num_examples for report in reports]
        if all(len(row) == len(first) for row in rows) and np.isfinite(rows).all() and any(weights):
            means[name] = np.average(rows, axis=0, weights=weights).tolist()
    return means


def partial_metrics(reports: Sequence[ClientReport]) -> dict[str, str]:
    """Return "3 of 4 clients" for each metric that lacks usable values of some clients."""
    usable = {name: sum(name in report.metrics for report in reports) for name in _names(reports)}
    return {
        name: f"{number} of {len(reports)} clients"
        for name, number in usable.items()
        if number < len(reports)
    }


def _names(reports: Sequence[ClientReport]) -> list[str]:
    """Return the names of the round's metrics, in the order in which the reports have them."""
    named = Counter(name for report in reports for name in (*report.metrics, *report.unusable))
    return [name for name, number in named.items() if 2 * number > len(reports)]
