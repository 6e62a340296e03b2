"""The values of a round: its settings, what a strategy sees of it, clients' reports, its outcome.

A metric of clients counts if most valid replies of the round name it: a single client can neither
remove a metric nor add its own. Its mean is over the clients whose value is usable
(`reply_validation.is_usable`); `partial_metrics` says how many there are.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, MetricRecord
from numpy.typing import NDArray

from .aggregation import Term
from .model import Model
from .reply_errors import ReplyError, ResyncError

# What a strategy reads from a reply: each is averaged over the clients.
Terms = tuple[Term, ...]


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


@dataclass(frozen=True)
class RunSettings:
    """What the runner must know of a run.

    Attributes:
        num_clients: K; 0 for the number of nodes.
        seed: The run's seed, for random numbers on the server.
        min_replies: The valid replies that a round needs.
        bounds: Bounds on the numbers of a reply.
        buffers: The names of the model's arrays that are sent uncompressed: those that gradients do
            not train, such as batch normalisation's running statistics and counters. The next model
            has the clients' mean of them under every strategy. None for `usual_buffers`.
        selection: Which clients take part (`strategies.selection.make_selection`).
        other_app: Whether an app other than this project's runs the rounds: then nodes are drawn,
            and messages with the model name the codec.
    """

    num_clients: int = 0
    seed: int = 0
    min_replies: int = 1
    bounds: ReplyBounds = field(default_factory=ReplyBounds)
    buffers: tuple[str, ...] | None = None
    selection: str = "uniform"
    other_app: bool = False


OTHER_APP = RunSettings(bounds=ReplyBounds(max_examples=10**15, exact=False), other_app=True)


@dataclass(frozen=True)
class Round:
    """A round of training, as the strategy sees it.

    Attributes:
        number: From 1.
        model: The global model that clients are sent.
        config: The settings sent to all clients.
        settings: Of the run.
        times: How often each client counts, by node, if it was selected several times.
    """

    number: int
    model: Model
    config: Mapping[str, Any]
    settings: RunSettings = field(default_factory=RunSettings)
    times: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Aggregate:
    """The aggregate of a round's valid replies.

    Attributes:
        nodes: The nodes that sent them.
        means: The weighted mean of each of the terms that the strategy reads, float64.
    """

    nodes: Sequence[int]
    means: Sequence[NDArray[np.float64]]

    @property
    def mean(self) -> NDArray[np.float64]:
        """The mean of a strategy that reads one term."""
        (mean,) = self.means
        return mean


@dataclass(frozen=True)
class RoundOutcome:
    """The outcome of a round or an evaluation.

    Attributes:
        model: The next global model; None if the round leaves it unchanged.
        metrics: The clients' metrics, aggregated; None without a usable reply.
        partial: For metrics that lack usable values of some clients: "3 of 4 clients".
        rejected: The reason, by node id, for every reply that was rejected.
        formula_bits_down: The bits of the training messages by the papers' formulas.
        formula_bits_up: The bits of the valid training replies, likewise.
        privacy: The "epsilon" and "epsilon-replace-one" at a "delta" that the run has spent so far;
            empty if not counted.
        reports: The reports of clients whose replies are used.
    """

    model: ArrayRecord | None = None
    metrics: MetricRecord | None = None
    partial: Mapping[str, str] = field(default_factory=dict)
    rejected: Mapping[int, ReplyError] = field(default_factory=dict)
    formula_bits_down: float = 0.0
    formula_bits_up: float = 0.0
    privacy: Mapping[str, float] = field(default_factory=dict)
    reports: Sequence[ClientReport] = ()

    @property
    def num_resyncing(self) -> int:
        """How many clients lost their state, which does not mean that the run is failing."""
        return sum(isinstance(error, ResyncError) for error in self.rejected.values())


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
