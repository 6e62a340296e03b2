"""Any other `flwr.serverapp.strategy.Strategy`, Flower's own included, behind our validation."""

import logging
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import (
    DifferentialPrivacyClientSideAdaptiveClipping,
    DifferentialPrivacyClientSideFixedClipping,
    Strategy,
)

from .aggregation import BufferMean
from .exchange import Exchange, Exchanges
from .flower_arrays import array_record, find_record, get_record, to_record
from .flower_metrics import check_keys, keep_shared, wrapped
from .messages import ARRAYS, METRICS, NUM_EXAMPLES
from .model import Arrays, Model, Vector, change_norm
from .privacy import CLIPPED_BY_CLIENTS, CLIPPED_BY_THE_SERVER, PRIVATE, accountant_of
from .reply_errors import ReplyError
from .reply_validation import Reply, check_norm, read_report
from .runner import Runner, StrategyError
from .values import ClientReport, Round, RoundOutcome, RunSettings

FLOWER = logging.getLogger("flwr")
logger = logging.getLogger("fedavg_app.strategies")

# Clipping divides by an update's norm in float32, where the squares of smaller norms underflow; and
# a change of one entry that can be clipped.
MIN_CLIPPED_NORM, CLIPPABLE = 1e-18, 1e-15
# A client's clipped update is rounded as it is added to the model.
CLIPPING_TOLERANCE = 1.01
COVERED = (
    "epsilon covers the models, whose means weight all clients equally; the clients' metrics, such "
    "as their losses, and which of their replies were rejected are in the history without noise"
)


class FlowerAdapter(Runner):
    """Runs a strategy written for Flower; it gets only replies with the model's arrays, all finite.

    Flower's strategies drop a round in which a reply's records or metrics differ from the others':
    they see only the metrics that all have (`flower_metrics`), and only trained arrays: a server
    optimiser's step would make a variance negative, and noise would spoil a counter. The next model
    has the mean of the buffers, weighted by n_k.

    Args:
        inner: The strategy.
        settings: Of the run.
    """

    def __init__(self, inner: Strategy, settings: RunSettings | None = None) -> None:
        super().__init__(settings)
        self.inner = inner
        self.plain_sgd = any(getattr(strategy, "plain_sgd", False) for strategy in wrapped(inner))
        self.clips_on_clients = isinstance(inner, CLIPPED_BY_CLIENTS)
        self.counts_privacy = accountant_of(inner) is not None

    def round(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Exchanges:
        """Yield the inner strategy's messages, for all nodes of the grid; return the outcome.

        Raises:
            ValueError: As for `Runner.read_model`.
            StrategyError: The inner strategy failed, or adds noise for another number of clients.
        """
        model = self.read_model(arrays)
        self._now = Round(server_round, model, config, self.settings)
        with self._calling_inner(server_round):
            made = self.inner.configure_train(server_round, trained_record(model), config, grid)
            messages = with_buffers(list(made), model)
        sampled = getattr(self.inner, "num_sampled_clients", None)
        if isinstance(self.inner, PRIVATE) and sampled != (clients := len(messages)):
            fix = f"the noise is for their number; give {clients}"
            raise StrategyError(f"num-sampled-clients = {sampled}, the round has {clients}: {fix}")
        buffers, kept = BufferMean(model.buffers), list[Message]()

        def read(message: Message) -> ClientReport:
            reply = Reply(message, model, self.settings.bounds)
            report, vector, own = reply.report, reply.vector, reply.buffers
            vector = self._check(report, vector, own)
            buffers.add(own, report.num_examples)
            # Flower's strategies take arrays by their place.
            record = to_record(model.layout.unflatten(vector))
            message.content = RecordDict({**message.content, ARRAYS: record})
            kept.append(message)
            return report

        exchange = Exchange(messages, read)
        yield exchange
        next_arrays, metrics = None, None
        try:
            exchange.require(self.settings.min_replies)
            means = buffers.result()
            vector, metrics = self._aggregate(kept, exchange.reports)
            if vector is not None:
                next_arrays = Model(model.layout, vector, means, model.order).record
        except ReplyError as error:
            exchange.reject_all(error)
        accountant = accountant_of(self.inner)
        return RoundOutcome(
            model=next_arrays,
            metrics=None if next_arrays is None else metrics,
            partial=self.log(exchange, server_round, "training"),
            rejected=exchange.rejected,
            formula_bits_down=len(messages) * self.reply_bits(0),
            formula_bits_up=len(exchange.reports) * self.reply_bits(0),
            privacy={} if accountant is None else accountant.spent(),
        )

    def evaluation(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Exchanges:
        """Yield the inner strategy's messages; return what it makes of the clients' metrics."""
        model, kept = self.read_model(arrays), list[Message]()
        with self._calling_inner(server_round):
            made = self.inner.configure_evaluate(server_round, trained_record(model), config, grid)
            messages = with_buffers(list(made), model)

        def read(message: Message) -> ClientReport:
            report = read_report(message, self.settings.bounds, NUM_EXAMPLES)
            check_keys(report, self.inner, trained=False)
            kept.append(message)
            return report

        def metrics() -> MetricRecord:
            complete = keep_shared(kept, exchange.reports, self.inner)
            with self._calling_inner(server_round):
                aggregated = self.inner.aggregate_evaluate(server_round, kept)
            return complete(aggregated)

        exchange = Exchange(messages, read)
        return (yield from self.tested(server_round, exchange, metrics))

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

    def _check(self, report: ClientReport, vector: Vector, buffers: Arrays) -> Vector:
        """Check that the inner strategy can handle a reply; return its vector.

        Flower cannot clip an update of zero: the last bit of the largest entry stands for it.

        Raises:
            ReplyError: It cannot.
        """
        model, bounds = self.now.model, self.settings.bounds
        norm = 0.0
        if bounds.max_update_norm < math.inf or isinstance(self.inner, PRIVATE):  # it costs a pass
            norm = change_norm(vector, model.vector)
            check_norm(norm, buffers, model.buffers, bounds)
        check_keys(report, self.inner, trained=True)
        if isinstance(self.inner, CLIPPED_BY_THE_SERVER) and norm < MIN_CLIPPED_NORM:
            vector, largest = model.vector.copy(), int(np.argmax(np.abs(model.vector)))
            eps = max(np.finfo(dtype).eps for dtype in model.layout.all_dtypes)
            vector[largest] += max(abs(vector[largest]) * eps, CLIPPABLE)
            if change_norm(model.layout.rounded(vector), model.vector) < MIN_CLIPPED_NORM:
                raise ReplyError("the update is zero, which cannot be clipped")
        if isinstance(self.inner, DifferentialPrivacyClientSideFixedClipping):
            most = self.inner.clipping_norm
            if norm > most * CLIPPING_TOLERANCE:
                raise ReplyError(
                    f"the update's norm is {norm:.3g}, clipping-norm is {most:g}; "
                    "client-mods needs fixedclipping_mod"
                )
        adapts = isinstance(self.inner, DifferentialPrivacyClientSideAdaptiveClipping)
        if adapts and "norm_bit" not in report.metrics:
            raise ReplyError("no metric 'norm_bit'; client-mods needs adaptiveclipping_mod")
        return vector

    def _aggregate(
        self, replies: list[Message], reports: Sequence[ClientReport]
    ) -> tuple[Vector | None, MetricRecord | None]:
        """Return the vector and the metrics that the inner strategy makes of the replies.

        Raises:
            ReplyError: The model would not be finite: a strategy's computation with finite replies
                can overflow.
            StrategyError: The inner strategy failed.
        """
        complete = keep_shared(replies, reports, self.inner)
        if self.counts_privacy:  # a client of many examples would move the mean by more than C / m
            for reply in replies:
                get_record(reply.content, METRICS, MetricRecord)[NUM_EXAMPLES] = 1
        before = [(strategy, dict(vars(strategy))) for strategy in wrapped(self.inner)]
        layout = self.now.model.layout
        with self._calling_inner(self.now.number):
            arrays, metrics = self.inner.aggregate_train(self.now.number, replies)
            found = complete(metrics)
            if arrays is None:
                return None, found
            # FedAdam and others return float64.
            new = layout.rounded(layout.flatten({n: arrays[n].numpy() for n in layout.names}))
        if not np.isfinite(new).all():
            for strategy, attributes in before:  # Flower's replace what they keep, such as momentum
                vars(strategy).update(attributes)
            raise ReplyError(
                f"the model that {type(self.inner).__name__} made of the replies is not finite"
            )
        return new, found

    @contextmanager
    def _calling_inner(self, server_round: int) -> Iterator[None]:
        """Log the inner strategy's messages as debug messages; name it in the error it raises."""
        with as_debug_messages():
            try:
                yield
            except Exception as error:
                name = type(self.inner).__name__
                raise StrategyError(f"{name} failed in round {server_round}") from error


def trained_record(model: Model) -> ArrayRecord:
    """Return the model's trained arrays."""
    if not model.buffers:
        return model.record
    return array_record({name: model.record[name] for name in model.layout.names})


def with_buffers(messages: list[Message], model: Model) -> list[Message]:
    """Return the messages with the model's buffers beside the arrays of each."""
    complete: dict[int, ArrayRecord] = {}  # by the record that messages share
    for message in messages if model.buffers else ():
        trained = find_record(message.content, ARRAYS, ArrayRecord)
        if trained is not None:
            if id(trained) not in complete:
                complete[id(trained)] = array_record({**model.record, **trained})
            message.content = RecordDict({**message.content, ARRAYS: complete[id(trained)]})
    return messages


@contextmanager
def as_debug_messages() -> Iterator[None]:
    """Log what Flower's logger gets to ours instead, INFO as DEBUG.

    Flower's strategies write several INFO lines in every round to the logger "flwr", which has a
    handler of its own: the lines would go through a live display, and a second time to the root
    logger's handlers. DEBUG messages go to a run's ``run.log``; warnings keep their level.
    """

    def forward(record: logging.LogRecord) -> bool:
        level = record.levelno if record.levelno > logging.INFO else logging.DEBUG
        logger.log(level, "%s", record.getMessage().replace("\t", "  "))
        return False

    level = FLOWER.level
    FLOWER.addFilter(forward)
    FLOWER.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        FLOWER.setLevel(level)
        FLOWER.removeFilter(forward)
