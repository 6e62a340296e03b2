"""Aggregates the clients' own tests of a model."""

import logging
import math
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

import numpy as np
from flwr.app import ArrayRecord, Message

from fedavg_app.client.metric_states import STATES, read_states
from fedavg_app.client.mods import UNTRAINED
from strategies.rounds.exchange import Exchange
from strategies.rounds.flower_arrays import find_record
from strategies.rounds.reply_errors import printable, shorten
from strategies.rounds.reply_validation import is_usable
from strategies.rounds.values import ClientReport, RoundOutcome
from tasks.metrics import Metric, Ratio, State, value_or_nan
from tasks.objective import LOSS

logger = logging.getLogger("fedavg_app.client_evaluations")


@dataclass(frozen=True)
class ClientScores:
    """The metrics of the clients that tested a model.

    Attributes:
        metrics: The metrics over all their examples, with the clients' plain means and tenths
            (`RoundMetrics.client_metrics`).
        values: Each client's value by node, for each metric.
        partial: For metrics that not all clients have: "3 of 4 clients".
    """

    metrics: dict[str, float] = field(default_factory=dict)
    values: dict[str, dict[int, float]] = field(default_factory=dict)
    partial: dict[str, str] = field(default_factory=dict)


class ClientTests:
    """Merges the metrics of a round's tests by clients.

    A client whose metrics are not means over its examples sends their states, too: these are taken
    out of its reply before a strategy sees it. Clients that have no local arrays of their own yet,
    because they have never trained, are left out.

    Args:
        metrics: The task's.
    """

    def __init__(self, metrics: Mapping[str, Metric]) -> None:
        self._metrics = metrics
        self._records: dict[int, ArrayRecord] = {}
        self._untrained = 0

    def take(self, exchange: Exchange, reply: Message) -> bool:
        """Keep a reply's states, and pass it on without them; return whether it is usable.

        A reply of a client that has never trained is in time, but not passed on.
        """
        if reply.has_error():
            return exchange.take(reply)
        if UNTRAINED in reply.content:
            self._untrained += 1
            return True
        record = find_record(reply.content, STATES, ArrayRecord)
        if record is not None:
            self._records[reply.metadata.src_node_id] = record
        reply.content.pop(STATES, None)
        return exchange.take(reply)

    def scores(self, outcome: RoundOutcome, means: Mapping[str, float]) -> ClientScores:
        """Return the metrics of the clients whose replies are used.

        Args:
            outcome: What the strategy made of the replies.
            means: Its metrics: the means weighted by n_k, which are those over all examples where
                clients sent no states.
        """
        found = ClientScores({**means})
        reports = {report.node_id: report.metrics for report in outcome.reports}
        for name in [name for name in (*means, *outcome.partial) if name not in self._metrics]:
            self._count(found, [name], sum(name in sent for sent in reports.values()), outcome)
        losses = {node: sent.get(LOSS) for node, sent in reports.items()}
        if tested := {node: loss for node, loss in losses.items() if loss is not None}:
            found.values[LOSS] = tested
        for name, metric in self._metrics.items() if outcome.reports else ():
            self._add(found, name, metric, outcome)
        if self._untrained:
            logger.info("left out: tests by clients that have never trained (%d)", self._untrained)
        return found

    def _count(
        self, found: ClientScores, names: Sequence[str], number: int, outcome: RoundOutcome
    ) -> None:
        """Note of how many clients values are, where others have been tested."""
        if number < (total := len(outcome.reports) + self._untrained):
            found.partial.update(dict.fromkeys(names, f"{number} of {total} clients"))

    def _add(self, found: ClientScores, name: str, metric: Metric, outcome: RoundOutcome) -> None:
        reports = outcome.reports
        states = {report.node_id: self._states(report, name, metric) for report in reports}
        usable = _alike(metric, states)
        values = {}
        for report in reports:
            sent = report.node_id in self._records
            batches, value = usable.get(report.node_id), report.metrics.get(name)
            if batches and sent:
                value = value_or_nan(name, metric, batches, of_client=True)
            if batches and value is not None and is_usable(name, value):
                values[report.node_id] = value
        # The mean of the clients' values is not the metric over all of their examples.
        if self._records or not isinstance(metric, Ratio):
            found.metrics.pop(name, None)
            together = value_or_nan(
                name, metric, [state for batches in usable.values() for state in batches]
            )
            if math.isnan(together):
                logger.warning("the clients' %s has no value over all of them", name)
                return
            found.metrics[name] = together
        worst = 10 if metric.higher_is_better in (True, None) else 90
        mean, tenth = f"{name}-mean", f"{name}-p{worst}"
        # A client whose own value is not usable, such as an R2 of one example, still has states.
        self._count(found, [name], len(usable), outcome)
        self._count(found, [mean, tenth], len(values), outcome)
        if values:
            found.values[name] = values
            found.metrics[mean] = fmean(values.values())
            found.metrics[tenth] = float(np.percentile([*values.values()], worst))

    def _states(self, report: ClientReport, name: str, metric: Metric) -> list[State]:
        """Return the usable states of a client's metric, batch by batch."""
        record, value = self._records.get(report.node_id), report.metrics.get(name)
        if record is None and isinstance(metric, Ratio):
            return [] if value is None else [_as_state(value, report)]
        try:
            return read_states(record or ArrayRecord(), name, metric)
        except ValueError as error:
            text = "node %d: its %s is not used, the states cannot be read: %s"
            logger.warning(text, report.node_id, name, printable(shorten(str(error))))
            return []


def _alike(metric: Metric, states: Mapping[int, list[State]]) -> dict[int, list[State]]:
    """Return the states of the nodes whose arrays have the shapes that most nodes' have."""
    fixed = [part for part, is_fixed in metric.parts().items() if is_fixed]

    def shapes(batches: list[State]) -> Hashable:
        return frozenset(tuple(state[part].shape for part in fixed) for state in batches)

    known = Counter(shapes(batches) for batches in states.values() if batches)
    usual = known.most_common(1)[0][0] if known else None
    return {node: found for node, found in states.items() if found and shapes(found) == usual}


def _as_state(value: float, report: ClientReport) -> State:
    """Return the state of a client whose metric is a mean over its examples."""
    count = np.array(report.num_examples)
    return {"sum": value * count, "count": count}
