"""Runs a `Method`: calls its functions, and does everything else."""

import logging
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from flwr.app import (
    ArrayRecord,
    ConfigRecord,
    Message,
    MessageType,
    MetricRecord,
    RecordDict,
)
from flwr.serverapp import Grid

from ..method import Ask, Method, MetricsFunction
from ..selection import TRAINING_LOSS, Candidate
from .aggregation import BufferMean, WeightedMean, check_next
from .client_selection import AvailableClients, Participants
from .exchange import Exchange, Exchanges, advance
from .flower_arrays import find_record
from .local_arrays import KeptArrays, advice
from .messages import NOTE, SERVER_ROUND, Broadcast, refuse_clipping, write_contents
from .model import Model, Vector
from .reply_errors import ReplyError
from .reply_validation import Reply, check_norm
from .runner import Runner, StrategyError
from .values import Aggregate, ClientReport, Round, RoundOutcome, RunSettings, mean_metrics

logger = logging.getLogger("fedavg_app.strategies")


class StrategyRunner(Runner):
    """Runs the rounds of a strategy, for all nodes of the grid.

    Attributes:
        strategy: The strategy.
    """

    def __init__(self, strategy: Method, settings: RunSettings | None = None) -> None:
        super().__init__(settings)
        self.strategy = strategy
        self.train_type, self.local_work = strategy.train_type, strategy.local_work
        self.plain_sgd, self.takes_late = strategy.plain_sgd, strategy.takes_late
        self._local = KeptArrays(strategy.local_arrays)
        self.participants = Participants(strategy, self.settings)
        self.selects_clients = self.participants.are_selected

    def read_model(self, arrays: ArrayRecord) -> Model:
        """Return the model that is sent to clients, without the arrays that stay on them.

        Raises:
            ValueError: As in the base class, or as for `KeptArrays.travelling`.
        """
        return super().read_model(self._local.travelling(arrays))

    def round(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Exchanges:
        """Yield the exchanges of a round of training; return its outcome.

        Raises:
            ValueError: As for `read_model` and the strategy's `check`, the config lacks a key that
                the strategy needs, or has settings for clipping where clients send no models.
            StrategyError: The strategy failed.
        """
        strategy, model = self.strategy, self.read_model(arrays)
        strategy.check(model, self.settings)
        self._check(config)
        clients = self.settings.num_clients or len(list(grid.get_node_ids()))
        settings = replace(self.settings, num_clients=clients)
        told = ConfigRecord({**config, SERVER_ROUND: server_round})
        now = self._now = Round(server_round, model, told, settings)
        strategy.begin(now)
        if self.selects_clients:
            available, count = self.available(grid)
            chosen = yield from self.participants.select(
                now, available, count, partial(self._asking, now)
            )
            now = self._now = replace(now, times=chosen.times)
            nodes, rejected = list(chosen.times), chosen.rejected
        else:
            nodes, rejected = self.nodes(server_round, grid, trains=True), {}
        asks = strategy.exchanges(now, nodes)
        ask, vector = advance(asks)
        buffers, metrics, outcome = model.buffers, None, RoundOutcome(rejected=rejected)
        while ask is not None:
            exchange = Averaging(self, now, ask, strategy.train_metrics_aggr_fn)
            bits_down = sum(strategy.bits_down(now, node) for node in ask.nodes)
            yield exchange
            try:
                if exchange.trains:
                    buffers = exchange.buffers()
                with np.errstate(over="ignore", invalid="ignore"):
                    ask, vector = advance(asks, exchange.aggregate())
                    vector = self._checked(vector)
            except ReplyError as error:
                exchange.reject_all(error)
                ask, vector = None, None
            outcome = replace(
                outcome,
                partial={**outcome.partial, **self.log(exchange, server_round, "training")},
                rejected={**outcome.rejected, **exchange.rejected},
            )
            if exchange.trains:
                self.participants.note(now, exchange.reports)
                self._local.note([own.node_id for own in exchange.reports], exchange.rejected)
                bits_up = sum(strategy.bits_up(now, own.node_id) for own in exchange.reports)
                outcome = replace(outcome, formula_bits_down=bits_down, formula_bits_up=bits_up)
                metrics = exchange.metrics() if exchange.reports else None
        if vector is None:
            return outcome
        arrays = Model(model.layout, vector, buffers, model.order).record
        return replace(outcome, model=self._local.completed(arrays), metrics=metrics)

    def evaluation(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Exchanges:
        """Yield the exchange of an evaluation by clients; return their metrics, weighted by n_k."""
        strategy, told = self.strategy, ConfigRecord({**config, SERVER_ROUND: server_round})
        now = Round(server_round, self.read_model(arrays), told, self.settings)
        strategy.begin(now)
        nodes = self.nodes(server_round, grid, trains=False)
        if nodes and strategy.hides_clients:
            raise ValueError(f"fraction_evaluate: {type(strategy).__name__} takes 0")
        ask = Ask(nodes, MessageType.EVALUATE, strategy.broadcast, strategy.read_evaluation)
        exchange = Averaging(self, now, ask, strategy.evaluate_metrics_aggr_fn, tests=True)
        return (yield from self.tested(server_round, exchange, exchange.metrics))

    def reply_bits(self, node: int) -> float:
        """Return the bits of a node's training reply by the papers' formulas."""
        return self.strategy.bits_up(self.now, node)

    def forget_clients(self) -> None:
        """Tell the strategy that all clients have lost their memories."""
        self.strategy.forget_clients()

    def summary(self) -> None:
        """Log the strategy's headline."""
        logger.info("%s", self.strategy.headline)

    def nodes(self, server_round: int, grid: Grid, *, trains: bool) -> list[int]:
        """Return the nodes that take part."""
        return list(grid.get_node_ids())

    def available(self, grid: Grid) -> tuple[Sequence[Candidate], int]:
        """Return the clients that may take part in a round, and how many are wanted."""
        assert isinstance(grid, AvailableClients)
        return grid.available, grid.count

    def _asking(self, now: Round, nodes: Sequence[int]) -> Exchange:
        """Return the exchange that asks candidates for the loss on their training examples.

        Other apps know only evaluations, on the examples that they choose.
        """
        kind = MessageType.EVALUATE if self.settings.other_app else TRAINING_LOSS
        broadcast, read = self.strategy.broadcast, self.strategy.read_evaluation
        return Averaging(self, now, Ask(nodes, kind, broadcast, read), None)

    def messages(self, now: Round, ask: Ask) -> list[Message]:
        """Return one message for each of the nodes that are asked."""
        strategy, model = self.strategy, now.model
        is_told = ask.message_type == strategy.train_type or strategy.updates_evaluation
        keys = strategy.arrayrecord_key, strategy.configrecord_key
        sent = (ask.broadcast(now, node) if is_told else Broadcast() for node in ask.nodes)
        local = (self._local.records(node, keys[0]) for node in ask.nodes)
        has_end = is_told and strategy.has_client_end
        assert isinstance(now.config, ConfigRecord)
        contents = write_contents(model, now.config, keys, sent, has_end, local)
        return [
            Message(content, dst_node_id=node, message_type=ask.message_type)
            for node, content in zip(ask.nodes, contents, strict=True)
        ]

    def _check(self, config: ConfigRecord) -> None:
        """Check that clients can do what the strategy needs; ValueError if they cannot."""
        strategy, name = self.strategy, type(self.strategy).__name__
        if self._local and strategy.train_type != MessageType.TRAIN:
            raise ValueError(
                f"local_arrays: the clients of {name} send gradients and train nothing"
            )
        if not strategy.sends_models():
            refuse_clipping(config)
        if missing := [key for key in strategy.needs if key not in config]:
            raise ValueError(f"{name}: give {', '.join(missing)} in train_config")

    def _checked(self, vector: Vector | None) -> Vector | None:
        """Return the next model's vector, rounded to the arrays' dtypes.

        Raises:
            ReplyError: It would not be finite.
            StrategyError: The strategy returned a vector of another size.
        """
        if vector is None:
            return None
        layout = self.now.model.layout
        if np.shape(vector) != (layout.size,):
            raise StrategyError(f"step returned {list(np.shape(vector))}, not {[layout.size]}")
        vector = layout.rounded(np.asarray(vector))
        if not np.isfinite(vector).all():
            check_next(layout.unflatten(vector), layout.unflatten(self.now.model.vector))
        return vector


class Averaging(Exchange):
    """The exchange that a strategy asks for; averages what the strategy reads of the replies.

    Args:
        runner: The strategy's.
        now: The round.
        ask: What is asked.
        aggregate_metrics: The app's own function that aggregates metrics, if it has one.
        tests: Whether this is an evaluation, not a part of a training round.

    Attributes:
        trains: Whether clients train in this exchange.
    """

    def __init__(
        self,
        runner: StrategyRunner,
        now: Round,
        ask: Ask,
        aggregate_metrics: MetricsFunction | None,
        *,
        tests: bool = False,
    ) -> None:
        self.trains = ask.is_main and ask.message_type == runner.train_type
        messages = runner.messages(now, ask)
        super().__init__(messages, is_main=self.trains or tests)
        self._runner, self._now, self._ask = runner, now, ask
        self._aggregate_metrics = aggregate_metrics if ask.has_metrics else None
        self._means: list[WeightedMean] = []
        self._buffers = BufferMean(now.model.buffers if self.trains else {})
        self._contents: list[RecordDict] = []

    def read(self, message: Message) -> ClientReport:
        """Add a reply to the means; return its report.

        Raises:
            ReplyError: It must not be used.
        """
        now, strategy, bounds = self._now, self._runner.strategy, self._runner.settings.bounds
        keys = strategy.weighted_by_key, strategy.arrayrecord_key
        reply = Reply(message, now.model, bounds, *keys)
        try:
            terms = self._ask.read(now, reply)
            report = reply.report if self._ask.has_metrics else ClientReport(reply.node, 1.0)
            buffers = reply.buffers if self.trains else {}
            if self.trains and bounds.max_update_norm < math.inf:  # it costs a pass
                norm = strategy.update_norm(now, terms, reply)
                check_norm(norm, buffers, now.model.buffers, bounds)
        except ReplyError as error:
            strategy.on_rejected(now, reply.node, error)
            raise
        note = find_record(message.content, NOTE, ConfigRecord)
        if note and (name := str(note.get("array"))) in now.model.layout.names:
            module = name.rpartition(".")[0]
            self._runner.warn_once(module, f"round {now.number}: {advice(name)}")
        if self._aggregate_metrics is not None:
            self._contents.append(readable(message.content))
        weight = report.num_examples if strategy.weights == "samples" else 1.0
        weight *= now.times.get(reply.node, 1)
        if weight == 0:
            return report
        self._means.extend(WeightedMean() for _ in terms[len(self._means) :])
        for mean, term in zip(self._means, terms, strict=True):
            mean.add(term, weight)
        self._buffers.add(buffers, weight)
        return report

    def buffers(self) -> dict[str, Any]:
        """Return the next model's buffers.

        Raises:
            ReplyError: Too few clients have trained, all of them with the weight 0, or the buffers
                would not be finite.
        """
        self.require(self._runner.settings.min_replies)
        if not self._means:
            name = self._runner.strategy.weighted_by_key
            raise ReplyError(f"{name} is 0 in all usable replies")
        return self._buffers.result()

    def aggregate(self) -> Aggregate:
        """Return the means over the replies that are used."""
        nodes = [report.node_id for report in self.reports]
        return Aggregate(nodes, [mean.result() for mean in self._means])

    def metrics(self) -> MetricRecord:
        """Return the clients' metrics, by the app's own function or weighted by n_k."""
        if self._aggregate_metrics is None:
            return mean_metrics(self.reports)
        return self._aggregate_metrics(self._contents, self._runner.strategy.weighted_by_key)


def readable(content: RecordDict) -> RecordDict:
    """Return what functions that aggregate metrics get of a reply: all but arrays and our note."""
    kept = (name for name, record in content.items() if not isinstance(record, ArrayRecord))
    return RecordDict({name: content[name] for name in kept if name != NOTE})
