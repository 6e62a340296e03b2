"""The metrics of a round, from its clients' metrics.

A metric counts if most valid replies of the round name it: a single client can neither remove a
metric nor add its own. Its mean is over the clients whose value is usable
(`strategies.reply_validation.is_usable`); `partial_metrics` says how many there are.
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np
from flwr.app import MetricRecord

from .client_report import ClientReport


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
