"""Aggregation of the metrics that clients report."""

import math
from collections.abc import Sequence
from statistics import fmean

import numpy as np
from flwr.app import MetricRecord

from strategies.reply_validation import ClientReport


def mean_metrics(reports: Sequence[ClientReport]) -> MetricRecord:
    """Return the n_k-weighted mean of every metric that all reports have."""
    if not reports:
        return MetricRecord()
    total = sum(report.num_examples for report in reports)
    shared = [key for key in reports[0].metrics if all(key in report.metrics for report in reports)]
    return MetricRecord(
        {
            key: sum(report.num_examples / total * report.metrics[key] for report in reports)
            for key in shared
        }
    )


def accuracy_spread(reports: Sequence[ClientReport]) -> MetricRecord:
    """Return how the clients' accuracies are distributed.

    "accuracy-mean" weights all clients equally; "accuracy-p10" is the 10th percentile. Empty where
    a report has no accuracy, or one outside [0, 1].
    """
    accuracies = [report.metrics.get("accuracy", math.nan) for report in reports]
    if not accuracies or not all(0 <= accuracy <= 1 for accuracy in accuracies):
        return MetricRecord()
    tenth = float(np.percentile(accuracies, 10))
    return MetricRecord({"accuracy-mean": fmean(accuracies), "accuracy-p10": tenth})
