"""A trial round before round 1: whether a strategy of Flower's can aggregate a round's replies.

Arguments that do not fit a round of this size would raise in round 1, be ignored (Krum), or leave
the model as it is for ever (Bulyan). The trial finds them with made-up replies of a small model,
which has the names, dtypes and numbers of dimensions of the real one.
"""

import logging
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import MultiKrum, Strategy

import strategies
from fedavg_app.config import RunConfig, parse_arguments
from fedavg_app.errors import ConfigError
from fedavg_app.server.cohort import CohortGrid, cohort_size
from strategies.base import FederatedStrategy
from strategies.flower_adapter import NORM_BIT, FlowerAdapter, ModelNotFiniteError
from strategies.metric_keys import metric_keys, wrapped
from strategies.reply_validation import ARRAYS, METRICS, NUM_EXAMPLES

# Larger cohorts have no trial: it would take seconds.
MAX_REPLIES = 1000
# How often a strategy may ask for the nodes: it would wait for ever for more than there are.
MAX_LOOKS = 4


def check_aggregation(
    config: RunConfig, strategy: FederatedStrategy[Any], model: ArrayRecord
) -> None:
    """Check that the strategy can aggregate the replies of all clients of a round.

    Only strategies whose aggregation is Flower's are tried: another's might have side effects.

    Args:
        config: The run's settings.
        strategy: The strategy; the trial is made with another one of the same arguments.
        model: The model.

    Raises:
        ConfigError: It cannot.
    """
    if not isinstance(strategy, FlowerAdapter):
        return
    clients = cohort_size(config.fraction_train, config.num_clients)
    reason = _broken_rule(strategy.inner, clients)
    if not reason and clients <= MAX_REPLIES and _aggregates_as_flower(strategy.inner):
        arguments = parse_arguments("strategy-args", config.strategy_args)
        other = strategies.build(config.strategy, arguments)
        with _without_traces() as warnings:
            reason = _failure(other, _small(model), clients)
        reason = " ".join([reason, *warnings]) if reason else ""
    if reason:
        name = type(strategy.inner).__name__
        text = f"{name} cannot aggregate the {clients} replies of a round: {reason}"
        if config.strategy_args:
            raise ConfigError("strategy-args", config.strategy_args, text)
        raise ConfigError("strategy", config.strategy, text)


def krum_rule(strategy: MultiKrum, replies: int) -> str:
    """Return what Krum needs of its arguments (Blanchard et al. 2017), if they do not have it.

    A reply is scored by its distance to its n - f - 2 nearest others.
    """
    malicious, selected = strategy.num_malicious_nodes, strategy.num_nodes_to_select
    most = max(replies - 3, 0)
    if not 0 <= malicious <= most:
        return f"num-malicious-nodes = {malicious}: give 0 to {most}, three less than replies"
    if not 1 <= selected <= replies:
        return f"num-nodes-to-select = {selected}: give 1 to {replies}"
    return ""


# What a strategy needs, given the number of replies, where it would go on with something else.
RULES: dict[type[Strategy], Callable[[Any, int], str]] = {MultiKrum: krum_rule}


def _broken_rule(strategy: Strategy, replies: int) -> str:
    found = (
        rule(one, replies)
        for one in wrapped(strategy)
        for kind, rule in RULES.items()
        if isinstance(one, kind)
    )
    return next((reason for reason in found if reason), "")


def _aggregates_as_flower(strategy: Strategy) -> bool:
    return all(
        isinstance(one, FederatedStrategy)
        or type(one).aggregate_train.__module__.startswith("flwr.")
        for one in wrapped(strategy)
    )


def _failure(adapter: FederatedStrategy[Any], model: ArrayRecord, clients: int) -> str:
    """Return why the strategy cannot aggregate the replies; empty where it can."""
    assert isinstance(adapter, FlowerAdapter)
    try:
        messages = list(adapter.configure_train(1, model, ConfigRecord(), _ImpatientGrid(clients)))
        keys = {name for _, name in metric_keys(adapter.inner)}
        replies = [_reply(message, model, number, keys) for number, message in enumerate(messages)]
        arrays, _ = adapter.aggregate_train(1, replies)
    except Exception as error:  # whatever the strategy raises
        return " ".join(f"{type(error).__name__}: {error}".split())
    if any(isinstance(error, ModelNotFiniteError) for error in adapter.rejected.values()):
        return "its model has NaN or infinite values."
    if adapter.rejected:
        return ""  # a check of another package, which made-up replies do not pass
    if arrays is None:
        return "it makes no model of them."
    return ""


class _ImpatientGrid(CohortGrid):
    """A grid that names as many nodes as a round has."""

    def __init__(self, clients: int) -> None:
        super().__init__(cast(Grid, None), range(1, clients + 1))
        self._looks = 0

    def get_node_ids(self) -> list[int]:
        """Return the nodes' ids.

        Raises:
            RuntimeError: The strategy has asked too often.
        """
        self._looks += 1
        if self._looks > MAX_LOOKS:
            raise RuntimeError("it waits for more nodes than a round has")
        return super().get_node_ids()


def _small(model: ArrayRecord) -> ArrayRecord:
    """Return a model with the same names, dtypes and numbers of dimensions, of ones."""
    return ArrayRecord(
        {
            name: Array(np.ones([min(size, 2) for size in array.shape], array.dtype))
            for name, array in model.items()
        }
    )


def _reply(message: Message, model: ArrayRecord, number: int, keys: set[str]) -> Message:
    """Return a reply whose model differs from what was sent and from the other replies'."""
    arrays = {}
    for name, array in model.items():
        values = array.numpy()
        if np.issubdtype(values.dtype, np.floating):
            values = (values * (1 + (number + 1) / 1000)).astype(values.dtype)
        arrays[name] = Array(np.asarray(values))
    metrics = MetricRecord({**dict.fromkeys(keys, 1.0), NORM_BIT: 1, NUM_EXAMPLES: number + 1})
    content = RecordDict({ARRAYS: ArrayRecord(arrays), METRICS: metrics})
    return Message(content, reply_to=message)


@contextmanager
def _without_traces() -> Iterator[list[str]]:
    """Restore the global random states, from which Flower draws; yield what would be logged."""
    states = random.getstate(), np.random.get_state()  # noqa: NPY002
    log, texts = logging.getLogger("fedavg_app.strategies"), list[str]()

    def keep(record: logging.LogRecord) -> bool:
        if record.levelno >= logging.WARNING:
            texts.append(record.getMessage())
        return False

    log.addFilter(keep)
    try:
        yield texts
    finally:
        log.removeFilter(keep)
        random.setstate(states[0])
        np.random.set_state(states[1])  # noqa: NPY002
