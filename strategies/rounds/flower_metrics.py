"""The metrics of replies to a Flower strategy: those that it asks for, and the others.

Such a strategy gets the metrics that all replies have; the means of the others
(`strategies.rounds.values`) are added to its result.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import Strategy

from .flower_arrays import find_record
from .messages import ARRAYS, METRICS, NUM_EXAMPLES
from .reply_errors import ReplyError
from .values import ClientReport, mean_metrics

# Any real mean loss is far below, and QFedAvg's powers of it, up to 50, are finite in float64.
MAX_LOSS = 1e6


def metric_keys(strategy: Strategy) -> list[tuple[str, str]]:
    """Return (attribute, metric that it names) of a strategy and the strategies that it wraps.

    The name is in an attribute that ends in "_key": all of Flower's have ``weighted_by_key``, and
    QFedAvg has ``train_loss_key``.
    """
    return [
        (attribute, name)
        for inner in wrapped(strategy)
        for attribute, name in vars(inner).items()
        if attribute.endswith("_key") and isinstance(name, str)
    ]


def wrapped(strategy: Strategy) -> Iterator[Strategy]:
    """Yield the strategy, the strategy that it wraps, and so on."""
    inner: object = strategy
    while isinstance(inner, Strategy):
        yield inner
        inner = getattr(inner, "strategy", None)


def check_keys(report: ClientReport, strategy: Strategy, *, trained: bool) -> None:
    """Check that a reply has the metrics that the strategy needs.

    These are the metric by which it weights replies and, in training, those that its attributes
    ``train_..._key`` name.

    Raises:
        ReplyError: A metric is missing, the weight is not above 0, or the loss, of which QFedAvg
            takes a power, is negative or above `MAX_LOSS`.
    """
    for attribute, key in metric_keys(strategy):
        values = {**report.metrics, NUM_EXAMPLES: report.num_examples}
        value = values.get(key, values.get(key.replace("_", "-")))
        if attribute == "weighted_by_key" and (value is None or value <= 0):
            raise ReplyError(f"metric {key!r}, which replies are weighted by, is not above 0")
        if trained and attribute.startswith("train_") and value is None:
            raise ReplyError(f"no usable metric {key!r}, which the strategy needs")
        if trained and attribute == "train_loss_key" and not 0 <= (value or 0) <= MAX_LOSS:
            raise ReplyError(f"metric {key!r} is {value:g}, not from 0 to {MAX_LOSS:g}")


def keep_shared(
    replies: Sequence[Message], reports: Sequence[ClientReport], strategy: Strategy
) -> Callable[[MetricRecord | None], MetricRecord]:
    """Reduce the replies, in place, to their arrays and the metrics that all of them have.

    A metric is renamed for the strategy if only hyphens and underscores differ, as in "train_loss"
    and "train-loss".

    Returns:
        A function that adds the means of the other metrics, with the strategy's weights, to those
        that it made of the replies; all have the clients' names.
    """
    spelling: dict[str, str] = {}
    given = []
    for report in reports:
        metrics = dict(report.metrics)
        for key in {name for _, name in metric_keys(strategy)} - metrics.keys():
            if (hyphens := key.replace("_", "-")) in metrics:
                metrics[key] = metrics.pop(hyphens)
                spelling[key] = hyphens
        given.append(replace(report, metrics=metrics))
    shared = [key for key in given[0].metrics if all(key in report.metrics for report in given)]
    for reply, report in zip(replies, given, strict=True):
        own = {key: report.metrics[key] for key in shared}
        content = RecordDict({METRICS: MetricRecord({NUM_EXAMPLES: report.num_examples, **own})})
        arrays = find_record(reply.content, ARRAYS, ArrayRecord)
        if arrays is not None:
            content[ARRAYS] = arrays
        reply.content = content

    def complete(metrics: MetricRecord | None) -> MetricRecord:
        key = dict(metric_keys(strategy)).get("weighted_by_key", NUM_EXAMPLES)
        # `check_keys` has found the weight in every reply.
        weights = [{**report.metrics, NUM_EXAMPLES: report.num_examples}[key] for report in given]
        weighted = [
            replace(report, num_examples=w) for report, w in zip(given, weights, strict=True)
        ]
        others = {
            name: value for name, value in mean_metrics(weighted).items() if name not in shared
        }
        found = {**others, **(metrics or {})}
        return MetricRecord({spelling.get(name, name): value for name, value in found.items()})

    return complete
