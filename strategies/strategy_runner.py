"""Runs a `FederatedStrategy`: calls its functions, and does everything else."""

import logging
import math
import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from flwr.app import (
    ArrayRecord,
    ConfigRecord,
    Message,
    MessageType,
    Metadata,
    MetricRecord,
    RecordDict,
)
from flwr.serverapp import Grid

from .aggregation import BufferMean, WeightedMean
from .base_runner import (
    Finish,
    FinishEvaluation,
    OnRejected,
    Runner,
    StrategyError,
    Use,
    check_finite,
    nodes_of,
)
from .client_report import ClientReport
from .flower_arrays import array_record, find_record
from .local_arrays import NOTE, PLACES, VALUES, advice, complete, places_of
from .message_bytes import message_bytes, records_bytes
from .messages import (
    ARRAYS,
    ARRAYS_KEY,
    BUFFER_NAMES,
    CONFIG,
    CONFIG_KEY,
    OWN,
    SERVER_ROUND,
    Broadcast,
    refuse_clipping,
)
from .metrics import mean_metrics
from .model import Model, Vector, buffer_norms
from .reply_errors import ReplyError
from .reply_validation import Reply, check_norm, read_report
from .rounds import Aggregate, Round, RoundOutcome, RunSettings
from .server_messages import write_contents

if TYPE_CHECKING:
    from .base import FederatedStrategy

# After so many rounds in a row without a usable reply a run in another app ends.
MAX_EMPTY_ROUNDS = 3

logger = logging.getLogger("fedavg_app.strategies")


def readable(content: RecordDict) -> RecordDict:
    """Return what functions that aggregate metrics get of a reply: all but arrays and our note."""
    kept = (name for name, record in content.items() if not isinstance(record, ArrayRecord))
    return RecordDict({name: content[name] for name in kept if name != NOTE})


class StrategyRunner(Runner):
    """Runs the rounds of a strategy.

    Attributes:
        strategy: The strategy.
        traffic: In another app: the bytes of the messages so far, and of the same messages if each
            had the model.
    """

    def __init__(self, strategy: "FederatedStrategy", settings: RunSettings | None = None) -> None:
        super().__init__(settings)
        self.strategy = strategy
        self.train_type, self.local_work = strategy.train_type, strategy.local_work
        self.plain_sgd, self.takes_late = strategy.plain_sgd, strategy.takes_late
        self._local: dict[str, int] = {}  # the places of the local arrays
        self._initial = ArrayRecord()  # their initial values
        self._sent: list[Metadata] = []  # of the messages last made
        self._begin_training()

    def _begin_training(self) -> None:
        self.traffic = dict.fromkeys(("down", "up", "models down", "models up"), 0)
        self._training = secrets.randbits(31)  # tells clients that another training has begun
        self._keeping = set[int]()  # the nodes that have their local arrays
        self._empty, self._reasons = 0, ""  # rounds in a row without a usable reply, and why
        self._warned = set[str]()  # modules whose arrays clients seem to keep

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """Return one training message for each node that takes part.

        Raises:
            ValueError: As for `read_model`, the config lacks a key that the strategy needs, or has
                settings for clipping where clients send no models.
        """
        strategy, model = self.strategy, self.read_model(arrays)
        name = type(strategy).__name__
        if self._local and strategy.train_type != MessageType.TRAIN:
            raise ValueError(
                f"local_arrays: the clients of {name} send gradients and train nothing"
            )
        if not strategy.sends_models():
            refuse_clipping(config)
        if missing := [key for key in strategy.needs if key not in config]:
            raise ValueError(f"{name}: give {', '.join(missing)} in train_config")
        if self._now is not None and server_round <= self._now.number:
            strategy.__post_init__()  # `start` was called again
            self._begin_training()
        clients = self.settings.num_clients or len(list(grid.get_node_ids()))
        settings = replace(self.settings, num_clients=clients)
        self._now = Round(server_round, model, config, settings)
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

    def read_model(self, arrays: ArrayRecord) -> Model:
        """Return the model that is sent to clients, without the arrays that stay on them.

        Raises:
            ValueError: As in the base class, or as for `places_of`.
        """
        self._local = places_of(list(arrays), self.strategy.local_arrays)
        if not self._local:
            return super().read_model(arrays)
        self._initial = array_record({name: arrays[name] for name in self._local})
        return super().read_model(
            array_record({name: arrays[name] for name in arrays if name not in self._local})
        )

    def finish_round(
        self, server_round: int, replies: Iterable[Message], on_rejected: OnRejected | None = None
    ) -> RoundOutcome:
        """Return the round's outcome, as in the base class.

        Raises:
            StrategyError: The strategy failed; or, in another app, every reply was rejected in
                `MAX_EMPTY_ROUNDS` rounds in a row.
        """
        if self.settings.other_app:
            replies = self._counted(replies, trained=True)
        outcome = super().finish_round(server_round, replies, on_rejected)
        self._keeping -= outcome.rejected.keys()
        if outcome.model is not None:
            self._empty = 0
            model = complete(outcome.model, self._initial, self._local)
            return replace(outcome, model=model) if self._local else outcome
        if self.settings.other_app and outcome.rejected and not outcome.num_resyncing:
            self._empty += 1
            self._reasons = "; ".join(sorted(set(map(str, outcome.rejected.values())))[:3])
            if self._empty == MAX_EMPTY_ROUNDS:
                raise StrategyError(
                    f"no usable reply in {self._empty} rounds in a row: {self._reasons}"
                )
        return outcome

    def finish_evaluation(
        self, server_round: int, replies: Iterable[Message], on_rejected: OnRejected | None = None
    ) -> RoundOutcome:
        """Return the evaluation's outcome, as in the base class."""
        if self.settings.other_app:
            replies = self._counted(replies, trained=False)
        return super().finish_evaluation(server_round, replies, on_rejected)

    def node_of(self, reply: Message) -> int:
        """Return the node that a reply is of, or, if it has not answered, that was to answer."""
        answered = reply.metadata.reply_to_message_id
        if reply.has_error() and answered:  # it may be the SuperLink's own reply
            for sent in self._sent:
                if sent.message_id == answered:
                    return sent.dst_node_id
        return super().node_of(reply)

    def end_training(self, *, trained: bool) -> None:
        """Log the bytes of the messages, and of the same messages if each had the model.

        Raises:
            StrategyError: No round gave a model, since every reply was rejected.
        """
        if self._reasons and not trained:
            raise StrategyError(f"no usable reply in any round: {self._reasons}")
        parts = []
        for way in ("down", "up"):
            own, full = self.traffic[way], self.traffic[f"models {way}"]
            times = full / max(own, 1)
            parts.append(f"{own:,} bytes {way} (full models: {full:,}, {times:.3g} times as many)")
        logging.getLogger("flwr").info("Sent %s", ", ".join(parts))

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
            keys = strategy.weighted_by_key, strategy.arrayrecord_key
            reply = Reply(message, now.model, self.settings.bounds, *keys)
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
            self._warn_of(message)
            if strategy.train_metrics_aggr_fn is not None:
                metrics.append(readable(message.content))
            weight = report.num_examples if strategy.weights == "samples" else 1.0
            if weight == 0:
                return report
            means.extend(WeightedMean() for _ in terms[len(means) :])
            for mean, term in zip(means, terms, strict=True):
                mean.add(term, weight)
            buffers.add(own, weight)
            return report

        def finish(reports: list[ClientReport]) -> tuple[Vector | None, MetricRecord | None]:
            nodes = [report.node_id for report in reports]
            if not means:
                raise ReplyError(f"{strategy.weighted_by_key} is 0 in all usable replies")
            self._keeping |= set(nodes)
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
            metrics.append(readable(message.content))
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
        sent = (strategy.broadcast(now, node) if has_end else Broadcast() for node in nodes)
        contents = write_contents(model, config, keys, sent, common)
        messages = [
            Message(content, dst_node_id=node, message_type=message_type)
            for node, content in zip(nodes, contents, strict=True)
        ]
        if self._local:
            told = ConfigRecord({"training": self._training, "record": strategy.arrayrecord_key})
            told["names"], told["places"] = list(self._local), list(self._local.values())
            for message in messages:
                message.content[PLACES] = told
                if message.metadata.dst_node_id not in self._keeping:
                    message.content[VALUES] = self._initial
        if self.settings.other_app:
            self._sent = [message.metadata for message in messages]
            self.traffic["down"] += sum(map(message_bytes, messages))
            self.traffic["models down"] += len(messages) * self._model_bytes()
        return messages

    def _model_bytes(self) -> int:
        """Return the bytes of the whole model."""
        return records_bytes([self.now.model.record, self._initial])

    def _counted(self, replies: Iterable[Message], *, trained: bool) -> Iterator[Message]:
        """Yield the replies, and count their bytes."""
        for reply in replies:
            if reply.has_content():
                self.traffic["up"] += message_bytes(reply)
                self.traffic["models up"] += self._model_bytes() if trained else 0
            yield reply

    def _warn_of(self, message: Message) -> None:
        """Log, once, that a client seems to keep an array."""
        note = find_record(message.content, NOTE, ConfigRecord)
        name = "" if note is None else note.get("array")
        if (
            name in self.now.model.layout.names
            and (module := str(name).rpartition(".")[0]) not in self._warned
        ):
            self._warned.add(module)
            logger.warning("round %d: %s", self.now.number, advice(str(name)))

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
