"""The metrics that a strategy written for Flower asks for by name.

Such a strategy keeps the name in an attribute that ends in "_key": all of Flower's have
``weighted_by_key``, and QFedAvg has ``train_loss_key``. Where the name has underscores and the
client's metric hyphens, as in "train_loss" and "train-loss", the strategy gets it under its name.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from flwr.serverapp.strategy import Strategy

from strategies.reply_validation import NUM_EXAMPLES, ClientReport, ReplyError

# An example's mean loss is far below, and QFedAvg's powers of it, up to 50, are finite in float64.
MAX_LOSS = 1e6


def metric_keys(strategy: Strategy) -> list[tuple[str, str]]:
    """Return pairs of an attribute of a strategy, or one that it wraps, and the metric it names."""
    return [
        (attribute, name)
        for one in wrapped(strategy)
        for attribute, name in vars(one).items()
        if attribute.endswith("_key") and isinstance(name, str)
    ]


def wrapped(strategy: Strategy) -> Iterator[Strategy]:
    """Yield the strategy, the one that it wraps, and so on."""
    one: object = strategy
    while isinstance(one, Strategy):
        yield one
        one = getattr(one, "strategy", None)


def check_keys(report: ClientReport, strategy: Strategy, *, trained: bool) -> None:
    """Check that a reply has the metrics that the strategy needs.

    They are that by which it weights replies, and of training those with an attribute
    ``train_..._key``.

    Raises:
        ReplyError: One is missing, the weight is not above 0, or the loss, of which QFedAvg takes a
            power, is negative or above `MAX_LOSS`.
    """
    for attribute, key in metric_keys(strategy):
        value = _value(report, key)
        if attribute == "weighted_by_key" and (value is None or value <= 0):
            raise ReplyError(f"metric {key!r}, which replies are weighted by, is not above 0")
        if trained and attribute.startswith("train_") and value is None:
            raise ReplyError(f"no finite metric {key!r}, which the strategy needs")
        if trained and attribute == "train_loss_key" and not 0 <= (value or 0) <= MAX_LOSS:
            raise ReplyError(f"metric {key!r} is {value:g}, not from 0 to {MAX_LOSS:g}")


def in_spelling_of(
    strategy: Strategy, reports: Sequence[ClientReport]
) -> tuple[list[ClientReport], dict[str, str]]:
    """Return the reports with the strategy's spelling of the metrics that it knows.

    Returns:
        The reports, and the clients' spelling of each name that was changed.
    """
    changed: dict[str, str] = {}
    renamed = []
    for report in reports:
        metrics = dict(report.metrics)
        for key in {name for _, name in metric_keys(strategy)} - metrics.keys():
            if (hyphens := _hyphens(key)) in metrics:
                metrics[key] = metrics.pop(hyphens)
                changed[key] = hyphens
        renamed.append(replace(report, metrics=metrics))
    return renamed, changed


def _value(report: ClientReport, key: str) -> float | None:
    values = {**report.metrics, NUM_EXAMPLES: report.num_examples}
    return values.get(key, values.get(_hyphens(key)))


def _hyphens(key: str) -> str:
    return key.replace("_", "-")
