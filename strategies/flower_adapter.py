"""Any other `flwr.serverapp.strategy.Strategy`, Flower's own included, behind our validation.

Flower's strategies raise when one reply's records differ from the others' and average NaN. Behind
`FlowerAdapter` they see valid replies only.
"""

import logging
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import (
    DifferentialPrivacyClientSideAdaptiveClipping,
    DifferentialPrivacyClientSideFixedClipping,
    DifferentialPrivacyServerSideAdaptiveClipping,
    DifferentialPrivacyServerSideFixedClipping,
    Strategy,
)

from strategies.aggregation import Arrays, cast_like, l2_norm, without
from strategies.base import FederatedStrategy, StrategyError
from strategies.flower_arrays import array_record, find_record, from_record, get_record
from strategies.flower_metrics import check_keys, keep_shared, renamed, with_partial, wrapped
from strategies.metrics import accuracy_spread
from strategies.privacy import accountant_of
from strategies.reply_validation import (
    ARRAYS,
    METRICS,
    NUM_EXAMPLES,
    ClientReport,
    ClientUpdate,
    ReplyError,
    validate_arrays,
)

FLOWER = logging.getLogger("flwr")
logger = logging.getLogger("fedavg_app.strategies")

# Clipping divides by an update's norm in float32, where the squares of smaller norms underflow.
MIN_CLIPPED_NORM = 1e-18
# A client's clipped update is rounded as it is added to the model.
CLIPPING_TOLERANCE = 1.01
CLIPPED_BY_THE_SERVER = (
    DifferentialPrivacyServerSideAdaptiveClipping,
    DifferentialPrivacyServerSideFixedClipping,
)
CLIPPED_BY_CLIENTS = (
    DifferentialPrivacyClientSideAdaptiveClipping,
    DifferentialPrivacyClientSideFixedClipping,
)
PRIVATE = (*CLIPPED_BY_THE_SERVER, *CLIPPED_BY_CLIENTS)
COVERED = (
    "epsilon covers the models, whose means weight all clients equally; the clients' metrics, such "
    "as their losses, and which of their replies were rejected are in the history without noise"
)


class FlowerAdapter(FederatedStrategy[Message]):
    """A strategy written for Flower; it gets only replies with the model's arrays, all finite.

    Replies are reduced to the records and metrics that all of them share: one client with a metric
    of its own would make Flower's strategies drop the round. The means of other metrics
    (`strategies.metrics`) are made here, with the strategy's weights. The strategy sees trained
    arrays only: a server optimiser's step would make a variance negative, and noise would spoil a
    counter. Buffers travel beside them, and the next model has the mean of them, weighted by n_k.

    Args:
        inner: The strategy.
    """

    def __init__(self, inner: Strategy) -> None:
        super().__init__()
        self.inner = inner
        self.plain_sgd = any(getattr(one, "plain_sgd", False) for one in wrapped(inner))
        self.clips_on_clients = isinstance(inner, CLIPPED_BY_CLIENTS)
        self.counts_privacy = accountant_of(inner) is not None
        self._metrics: MetricRecord | None = None
        self._evaluated: list[Message] = []
        self.reset()

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return the inner strategy's messages.

        Raises:
            StrategyError: The inner strategy failed.
        """
        self.start_round(server_round, arrays, config)
        trained = self.trained(arrays)
        with self._calling_inner():
            messages = list(self.inner.configure_train(server_round, trained, config, grid))
        return self._with_buffers(messages, arrays)

    def validate(self, reply: Message) -> ClientUpdate[Message]:
        """Return the reply itself; it must hold the arrays of the model that was sent.

        Raises:
            ReplyError: It does not, or the inner strategy cannot handle it.
        """
        update = validate_arrays(reply, self.model, self.settings.bounds, origin=self.model)
        check_keys(update.report, self.inner, trained=True)
        if isinstance(self.inner, CLIPPED_BY_THE_SERVER):
            trained = without(update.content, self.settings.buffers)
            if l2_norm(trained, from_record(self.model)) < MIN_CLIPPED_NORM:
                raise ReplyError("the update is zero, which cannot be clipped")
        if isinstance(self.inner, DifferentialPrivacyClientSideFixedClipping):
            trained = without(update.content, self.settings.buffers)
            norm, most = l2_norm(trained, from_record(self.model)), self.inner.clipping_norm
            if norm > most * CLIPPING_TOLERANCE:
                raise ReplyError(
                    f"the update's norm is {norm:.3g}, clipping-norm is {most:g}; "
                    "client-mods needs fixedclipping_mod"
                )
        adapts = isinstance(self.inner, DifferentialPrivacyClientSideAdaptiveClipping)
        if adapts and "norm_bit" not in update.report.metrics:
            raise ReplyError("no metric 'norm_bit'; client-mods needs adaptiveclipping_mod")
        return ClientUpdate(update.report, reply)

    def accumulate(self, update: ClientUpdate[Message]) -> None:
        """Keep the reply: Flower's strategies take all replies at once.

        They take arrays by their place, so the reply's get the model's order.
        """
        reply = update.content
        record = get_record(reply.content, ARRAYS, ArrayRecord)
        arrays = array_record({name: record[name] for name in self.model})
        if self.settings.buffers:
            self.buffer_mean.add(from_record(arrays), update.report.num_examples)
        reply.content = RecordDict({**reply.content, ARRAYS: self.trained(arrays)})
        self._updates.append(update)

    def finalize(self, model: Arrays) -> Arrays | None:
        """Return the inner strategy's model, in the dtypes of ``model``.

        FedAdam and others return float64.

        Raises:
            ReplyError: The model would not be finite: finite replies can overflow in what a
                strategy computes of them.
            StrategyError: The inner strategy failed.
        """
        replies = [update.content for update in self._updates]
        reports, spelling = renamed([update.report for update in self._updates], self.inner)
        keep_shared(replies, reports)
        if self.counts_privacy:  # a client of many examples would move the mean by more than C / m
            for reply in replies:
                get_record(reply.content, METRICS, MetricRecord)[NUM_EXAMPLES] = 1
        before = [(one, dict(vars(one))) for one in wrapped(self.inner)]
        with self._calling_inner():
            arrays, metrics = self.inner.aggregate_train(self.server_round, replies)
            self._metrics = with_partial(metrics, reports, self.inner, spelling)
            if arrays is None:
                return None
            new = {
                name: cast_like(arrays[name].numpy(), like.dtype) for name, like in model.items()
            }
        if not all(np.isfinite(array).all() for array in new.values()):
            for one, attributes in before:  # Flower's replace what they keep, such as momentum
                vars(one).update(attributes)
            raise ReplyError(
                f"the model that {type(self.inner).__name__} made of the replies is not finite"
            )
        return new

    def privacy_spent(self) -> dict[str, float]:
        """Return what the inner strategy's accountant has counted; empty if it has none."""
        accountant = accountant_of(self.inner)
        return {} if accountant is None else accountant.spent()

    def reset(self) -> None:
        """Drop the replies."""
        super().reset()
        self._updates: list[ClientUpdate[Message]] = []

    def train_metrics(self, reports: Sequence[ClientReport]) -> MetricRecord | None:
        """Return the inner strategy's metrics."""
        del reports
        return self._metrics

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return the inner strategy's messages."""
        trained = self.trained(arrays)
        with self._calling_inner():
            messages = list(self.inner.configure_evaluate(server_round, trained, config, grid))
        return self._with_buffers(messages, arrays)

    def read_evaluation(self, reply: Message) -> ClientReport:
        """Return the report, and keep the reply for the inner strategy."""
        report = super().read_evaluation(reply)
        check_keys(report, self.inner, trained=False)
        self._evaluated.append(reply)
        return report

    def evaluation_metrics(
        self, server_round: int, reports: Sequence[ClientReport]
    ) -> MetricRecord:
        """Return the inner strategy's metrics, and the spread of accuracies."""
        replies, self._evaluated = self._evaluated, []
        given, spelling = renamed(reports, self.inner)
        keep_shared(replies, given)
        with self._calling_inner():
            metrics = self.inner.aggregate_evaluate(server_round, replies)
        means = with_partial(metrics, given, self.inner, spelling)
        return MetricRecord({**means, **accuracy_spread(reports)})

    def summary(self) -> None:
        """Log what the inner strategy is, and its settings as debug messages."""
        first_line = (type(self.inner).__doc__ or "").strip().split("\n")[0]
        logger.info("%s: %s", type(self.inner).__name__, first_line)
        with as_debug_messages():
            self.inner.summary()
        if self.settings.buffers and isinstance(self.inner, PRIVATE):
            names = ", ".join(self.settings.buffers)
            logger.warning("averaged without clipping and noise: %s", names)
        if self.counts_privacy:
            logger.info("%s", COVERED)

    def _with_buffers(self, messages: list[Message], model: ArrayRecord) -> list[Message]:
        """Return the messages with the model's buffers beside the arrays of each."""
        complete: dict[int, ArrayRecord] = {}  # by the record that messages share
        for message in messages if self.settings.buffers else ():
            trained = find_record(message.content, ARRAYS, ArrayRecord)
            if trained is not None:
                if id(trained) not in complete:
                    complete[id(trained)] = array_record({**model, **trained})
                content = {**message.content, ARRAYS: complete[id(trained)]}
                message.content = RecordDict(content)
        return messages

    @contextmanager
    def _calling_inner(self) -> Iterator[None]:
        """Log what the inner strategy logs as debug messages; name it in the error it raises."""
        with as_debug_messages():
            try:
                yield
            except Exception as error:
                name = type(self.inner).__name__
                raise StrategyError(f"{name} failed in round {self.server_round}") from error


@contextmanager
def as_debug_messages() -> Iterator[None]:
    """Log what this thread sends to Flower's logger to ours instead, INFO as DEBUG.

    Flower's strategies write several INFO lines in every round to the logger "flwr", which has a
    handler of its own: the lines would go through a live display, and a second time to the root
    logger's handlers. DEBUG messages go to a run's ``run.log``; warnings keep their level.
    """
    thread, level = threading.get_ident(), FLOWER.level

    def forward(record: logging.LogRecord) -> bool:
        if record.thread != thread:
            return record.levelno >= level
        if record.levelno > logging.INFO:
            logger.log(record.levelno, "%s", record.getMessage())
        else:
            logger.debug("%s", record.getMessage().replace("\t", "  "))
        return False

    FLOWER.addFilter(forward)
    FLOWER.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        FLOWER.setLevel(level)
        FLOWER.removeFilter(forward)
