"""Runs a `FederatedStrategy`: calls its functions, and does everything else."""

import logging
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid

from strategies.aggregation import BufferMean, WeightedMean
from strategies.base_runner import (
    Finish,
    FinishEvaluation,
    Runner,
    StrategyError,
    Use,
    check_finite,
    nodes_of,
)
from strategies.client_report import ClientReport
from strategies.messages import (
    ARRAYS,
    ARRAYS_KEY,
    BUFFER_NAMES,
    CONFIG,
    CONFIG_KEY,
    LINK,
    OWN,
    SERVER_ROUND,
    Broadcast,
    refuse_clipping,
)
from strategies.metrics import mean_metrics
from strategies.model import Vector, buffer_norms
from strategies.reply_errors import ReplyError
from strategies.reply_validation import Reply, check_norm, read_report
from strategies.rounds import Aggregate, NodeSettings, Round, RunSettings
from strategies.server_messages import write_contents

if TYPE_CHECKING:
    from strategies.base import FederatedStrategy

logger = logging.getLogger("fedavg_app.strategies")


class StrategyRunner(Runner):
    """Runs the rounds of a strategy.

    Attributes:
        strategy: The strategy.
    """

    def __init__(self, strategy: "FederatedStrategy", settings: RunSettings | None = None) -> None:
        super().__init__(settings)
        self.strategy = strategy
        self.train_type, self.local_work = strategy.train_type, strategy.local_work
        self.plain_sgd, self.takes_late = strategy.plain_sgd, strategy.takes_late
        self.links = frozenset(getattr(strategy, "links", ()))

    def configure_train(
        self,
        server_round: int,
        arrays: ArrayRecord,
        config: ConfigRecord,
        grid: Grid,
        by_node: NodeSettings | None = None,
    ) -> list[Message]:
        """Return one training message for each node that takes part.

        Raises:
            ValueError: As for `read_model`, the config lacks a key that the strategy needs, or has
                settings for clipping where clients send no models.
        """
        strategy, model = self.strategy, self.read_model(arrays)
        if not strategy.sends_models():
            refuse_clipping(config)
        if missing := [key for key in strategy.needs if key not in config]:
            name = type(strategy).__name__
            raise ValueError(f"{name}: give {', '.join(missing)} in train_config")
        if self._now is not None and server_round <= self._now.number:
            strategy.__post_init__()  # `start` was called again
        clients = self.settings.num_clients or len(list(grid.get_node_ids()))
        settings = replace(self.settings, num_clients=clients)
        self._now = Round(server_round, model, config, settings, by_node or {})
        nodes = self._drawn(server_round, grid, trains=True)
        return self._messages(self._now, config, nodes, strategy.train_type)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """Return one evaluation message for each node that takes part."""
        now = Round(server_round, self.read_model(arrays), config, self.settings)
        self._now = self._now or now
        nodes = self._drawn(server_round, grid, trains=False)
        return self._messages(now, config, nodes, MessageType.EVALUATE)

    def round_bits(self, nodes: Sequence[int]) -> float:
        """Return the bits of the round's messages by the papers' formulas."""
        return sum(self.strategy.bits_down(self.now, node) for node in nodes)

    def reply_bits(self, node: int) -> float:
        """Return the bits of a node's training reply by the papers' formulas."""
        return self.strategy.bits_up(self.now, node)

    def forget_clients(self) -> None:
        """Tell the strategy that all clients have lost their memories."""
        self.strategy.forget_clients()

    def summary(self) -> None:
        """Log the first line of the strategy's docstring."""
        doc = type(self.strategy).__doc__ or type(self.strategy).__name__
        logger.info("%s", doc.split("\n")[0])

    def _begin(self, buffers: BufferMean) -> tuple[Use, Finish]:
        """Average what the strategy reads from the replies, and let it step."""
        now, strategy = self.now, self.strategy
        means: list[WeightedMean] = []
        metrics: list[RecordDict] = []

        def use(message: Message) -> ClientReport:
            reply = Reply(message, now.model, self.settings.bounds, strategy.weighted_by_key)
            try:
                terms = strategy.read(now, reply)
                report, own = reply.report, reply.buffers
                if self.settings.bounds.max_update_norm < math.inf:  # it costs a pass
                    norms = buffer_norms(own, now.model.buffers)
                    norm = strategy.update_norm(now, terms, reply)
                    check_norm(math.hypot(norm, *norms), self.settings.bounds)
            except ReplyError as error:
                strategy.on_rejected(now, reply.node, error)
                raise
            weight = report.num_examples if strategy.weights == "samples" else 1.0
            means.extend(WeightedMean() for _ in terms[len(means) :])
            for mean, term in zip(means, terms, strict=True):
                mean.add(term, weight)
            buffers.add(own, weight)
            if strategy.train_metrics_aggr_fn is not None:
                metrics.append(RecordDict(dict(message.content.metric_records)))
            return report

        def finish(reports: list[ClientReport]) -> tuple[Vector | None, MetricRecord | None]:
            nodes = [report.node_id for report in reports]
            vector = self._step(Aggregate(nodes, [mean.result() for mean in means]))
            if strategy.train_metrics_aggr_fn is not None:
                return vector, strategy.train_metrics_aggr_fn(metrics, strategy.weighted_by_key)
            return vector, mean_metrics(reports)

        return use, finish

    def _begin_evaluation(self, server_round: int) -> tuple[Use, FinishEvaluation]:
        """Average the clients' metrics by n_k."""
        strategy = self.strategy
        metrics: list[RecordDict] = []

        def use(message: Message) -> ClientReport:
            if OWN in message.content:  # of a client whose mod keeps the model
                reply = Reply(message, self.now.model, self.settings.bounds)
                try:
                    strategy.read_evaluation(self.now, reply)
                except ReplyError as error:
                    strategy.on_rejected(self.now, reply.node, error)
                    raise
            report = read_report(message, self.settings.bounds, strategy.weighted_by_key)
            metrics.append(RecordDict(dict(message.content.metric_records)))
            return report

        def finish(reports: list[ClientReport]) -> MetricRecord:
            if strategy.evaluate_metrics_aggr_fn is not None:
                return strategy.evaluate_metrics_aggr_fn(metrics, strategy.weighted_by_key)
            return mean_metrics(reports)

        return use, finish

    def _drawn(self, server_round: int, grid: Grid, *, trains: bool) -> list[int]:
        """Return the nodes that take part: in this project's app all nodes of the grid."""
        if not self.settings.other_app:
            return list(grid.get_node_ids())
        sampling = self.strategy.sampling
        draw = sampling.configure_train if trains else sampling.configure_evaluate
        return nodes_of(draw(server_round, ArrayRecord(), ConfigRecord(), grid))

    def _messages(
        self, now: Round, config: ConfigRecord, nodes: Sequence[int], message_type: str
    ) -> list[Message]:
        """Return one message for each of the nodes."""
        strategy, model = self.strategy, now.model
        config[SERVER_ROUND] = now.number
        has_end = message_type == strategy.train_type or strategy.updates_evaluation
        keys, common = (strategy.arrayrecord_key, strategy.configrecord_key), dict[str, Any]()
        if strategy.has_client_end and has_end:
            if keys != (ARRAYS, CONFIG):
                common = {ARRAYS_KEY: keys[0], CONFIG_KEY: keys[1]}
            if model.buffers:
                common[BUFFER_NAMES] = list(model.buffers)
        strategy.begin(now)
        sent = (self._broadcast(now, node) if has_end else Broadcast() for node in nodes)
        contents = write_contents(model, config, keys, sent, common)
        return [
            Message(content, dst_node_id=node, message_type=message_type)
            for node, content in zip(nodes, contents, strict=True)
        ]

    def _broadcast(self, now: Round, node: int) -> Broadcast:
        sent = self.strategy.broadcast(now, node)
        link = now.by_node.get(node, {}).get(LINK)
        return sent if link is None else replace(sent, entries={**sent.entries, LINK: link})

    def _step(self, aggregate: Aggregate) -> Vector | None:
        """Return the next model's vector.

        Raises:
            ReplyError: It would not be finite.
            StrategyError: The strategy returned a vector of another size.
        """
        layout = self.now.model.layout
        with np.errstate(over="ignore", invalid="ignore"):
            vector = self.strategy.step(self.now, aggregate)
            if vector is None:
                return None
            if np.shape(vector) != (layout.size,):
                shape = list(np.shape(vector))
                raise StrategyError(f"step returned {shape}, not {[layout.size]}")
            vector = layout.rounded(vector)
        if not np.isfinite(vector).all():
            sent = layout.unflatten(self.now.model.vector)
            for name, array in layout.unflatten(vector).items():
                check_finite(name, array, sent[name])
        return vector
