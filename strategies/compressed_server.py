"""The server's end of every compressed strategy (docs/protocol.md).

Clients send compressed updates. The server turns each round's into one compressed update of the
global model and changes the model by exactly that. It keeps the last of these updates: a client
that missed some is sent those it missed, which is the papers' partial sum P(s), exact to the last
bit; or the full model where that is smaller, or where the client is new or has lost its state.
"""

import math
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp.typing import ClientAppCallable
from flwr.serverapp import Grid
from numpy.typing import NDArray
from pydantic.dataclasses import dataclass

from strategies import server_optimizer as server_optimizers
from strategies.aggregation import Arrays, l2_norm, without
from strategies.base import SMALLER_RATES, FederatedStrategy, model_bits
from strategies.client_state import LastBuilt
from strategies.codec import Codec
from strategies.compressed_client import train_compressed
from strategies.compressed_messages import (
    BUFFERS,
    REFUSED,
    CompressedReply,
    pack_settings,
    read_payload,
    read_update,
)
from strategies.compression.decoded_update import Vector
from strategies.compression.error_feedback import (
    NoFeedback,
    OutOfRangeError,
    add,
    check_range,
    compress,
)
from strategies.compression.sync_protocol import ClientVersions, Head, ReplyStatus
from strategies.compression.update_sum import EstimateSum, UpdateSum
from strategies.compression.vector_layout import Layout
from strategies.flower_arrays import from_record
from strategies.random_streams import DOWNLINK, random_stream
from strategies.registry import Weights
from strategies.reply_validation import (
    ARRAYS,
    CONFIG,
    ClientUpdate,
    NormError,
    ReplyError,
    ResyncError,
    check_norm,
    read_arrays,
    report_of,
)


@dataclass(kw_only=True, eq=False)
class CompressedStrategy(FederatedStrategy[CompressedReply]):
    """A strategy whose clients send compressed updates and are sent compressed updates.

    Subclasses are compositions: their arguments are fields, of which `make_codec` makes the codec,
    and they may override `combine`. Buffers, such as batch normalisation's statistics, travel
    beside the updates as they are, both ways, and the server takes their weighted mean.

    Args:
        weights: How clients count in the mean: "uniform", the STC paper's, or "samples", n_k.
        server_optimizer: Turns the mean update into the change of the model: "none", "sgd", "adam"
            or "yogi", or a table with arguments (`strategies.server_optimizer`).

    Attributes:
        codec: What both ends compress with. Unless its error feedback is `NoFeedback`, the server
            adds what it did not send to its next update.
        residual: The server's: what it has not sent yet, float32 (n,). None before the first round
            and without error feedback.
        update_sum: The sum of the clients' updates, or of the estimates that these change.
    """

    weights: Weights = "uniform"
    server_optimizer: str | Mapping[str, Any] = server_optimizers.NONE

    def __post_init__(self) -> None:
        super().__init__()
        self.codec = self.make_codec()
        self.optimizer = server_optimizers.build(self.server_optimizer)
        self.residual: Vector | None = None
        self.update_sum = EstimateSum() if self.codec.feedback.keeps_estimates else UpdateSum()
        self._layout = Layout((), ())
        self._versions = ClientVersions()
        # By node, the round whose update was refused for its norm, until one is accepted.
        self._refused: dict[int, int] = {}
        self._last_built: LastBuilt = {}  # at the client's end
        self.reset()

    def check_model(self, model: ArrayRecord) -> None:
        """Check that all trained arrays are float32; ValueError where one is not."""
        Layout.of(without(from_record(model), self.settings.buffers))

    def combine(self, total: NDArray[np.float64], weight: float) -> Vector:
        """Return what the updates amount to, from their weighted sum: the mean, as float32."""
        return (total / weight).astype(np.float32)

    @abstractmethod
    def make_codec(self) -> Codec:
        """Return what both ends compress with."""

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return one message for each node, with what the client's model lacks."""
        self.start_round(server_round, arrays, config)
        if not self._layout.names:  # the initial model, which no client has yet
            trained = without(from_record(arrays), self.settings.buffers)
            self._layout = Layout.of(trained)
            self._versions.start_from(server_round - 1, self._layout.flatten(trained))
        config["server-round"] = server_round
        if self.settings.buffers:
            config[BUFFERS] = list(self.settings.buffers)
        configs: dict[tuple[int, int | None, int], ConfigRecord] = {}
        return [self._message(node, configs) for node in grid.get_node_ids()]

    def validate(self, reply: Message) -> ClientUpdate[CompressedReply]:
        """Return the decoded update, and the buffers.

        Raises:
            ReplyError: It must not be used; a `ResyncError` where the client asks for the full
                model, a `DivergedReplyError` where its training diverged.
        """
        node = reply.metadata.src_node_id
        payload, metrics = read_payload(reply, self.codec, self.server_round)
        if payload.status == ReplyStatus.NEEDS_MODEL and self._versions.following(node) is None:
            raise ReplyError("the client asks for the model, which it was just sent")
        update = read_update(payload, self.codec, self._layout)
        report = report_of(node, metrics, self.settings.bounds)
        anew = payload.status == ReplyStatus.FIRST_UPDATE
        if not anew and node not in self.update_sum:
            raise ReplyError("the update changes an estimate that the server does not have")
        buffers = self.buffers(self.model)
        read = read_arrays(reply, buffers, BUFFERS) if buffers else {}
        if self.settings.bounds.max_update_norm < math.inf:
            changed = self.update_sum.changed(node, update, anew=anew)
            norm = math.hypot(changed.norm(), l2_norm(read, from_record(buffers)))
            check_norm(norm, self.settings.bounds)
        return ClientUpdate(report, CompressedReply(update, read, anew))

    def accumulate(self, update: ClientUpdate[CompressedReply]) -> None:
        """Add the weighted update to the round's sum."""
        node, content = update.report.node_id, update.content
        weight = update.report.num_examples if self.weights == "samples" else 1.0
        self.update_sum.add(node, content.update, weight, anew=content.anew)
        self.buffer_mean.add(content.buffers, weight)
        self._round_nodes.append(node)

    def finalize(self, model: Arrays) -> Arrays:
        """Return the model changed by exactly what clients will be sent.

        Only now are the updates acknowledged: those of a round with too few replies are not used,
        and their clients take them back.

        Raises:
            ReplyError: The update is not finite, or beyond what clients may send.
        """
        update = self.combine(*self.update_sum.finish())
        if self.optimizer is not None:
            changes = self.optimizer.step({"update": update.astype(np.float64)})
            update = changes["update"].astype(np.float32)
        if self.residual is not None:
            update = add(update, self.residual)
        rng = random_stream(self.settings.seed, DOWNLINK, 0, self.server_round)
        try:
            data, sent = compress(update, self.codec.downlink, self._layout, rng)
            check_range(sent)
        except OutOfRangeError as error:
            raise ReplyError(f"at the server {error}; {SMALLER_RATES}") from error
        self._versions.confirm(self._round_nodes, self.server_round)
        for node in self._round_nodes:
            self._refused.pop(node, None)
        if not isinstance(self.codec.feedback, NoFeedback):
            self.residual = update - sent.to_dense()
        vector = self._layout.flatten(model) + sent.to_dense()
        self._versions.append(self.server_round, data, vector)
        return self._layout.unflatten(vector)

    def reset(self) -> None:
        """Begin with an empty sum."""
        super().reset()
        self.update_sum.reset()
        self._round_nodes: list[int] = []

    def on_rejected(self, node_id: int, error: ReplyError) -> None:
        """Send a client that asks for the model all of it next time.

        One whose update was too long is told, so that it drops what made it so.
        """
        if isinstance(error, ResyncError):
            self._versions.confirmed.pop(node_id, None)
        feedback = self.codec.feedback
        if isinstance(error, NormError) and feedback.memories and not feedback.keeps_estimates:
            self._refused[node_id] = self.server_round

    def client_mod(
        self, message: Message, context: Context, call_next: ClientAppCallable
    ) -> Message:
        """Keep the client's copy of the model in step, and send its compressed update."""
        return train_compressed(message, context, call_next, self.codec, self._last_built)

    def round_bits(self, messages: Sequence[Message]) -> float:
        """Return the formula's bits of the updates that clients lack, at most the model's each."""
        full, buffers = model_bits(self.model), model_bits(self.buffers(self.model))
        missed = [self._versions.num_missed(one.metadata.dst_node_id) for one in messages]
        return sum(
            full if count is None else min(self.missed_updates_bits(count) + buffers, full)
            for count in missed
        )

    def reply_bits(self) -> float:
        """Return the uplink compressor's formula for one update."""
        buffers = model_bits(self.buffers(self.model))
        return self.codec.uplink_in(self.server_round).expected_bits(self._layout) + buffers

    def forget_clients(self) -> None:
        """Send every client the full model next time, and let estimates begin anew."""
        self._versions.confirmed.clear()
        self._refused.clear()
        self.update_sum.forget()
        if self.codec.feedback.keeps_estimates:
            self._versions.accepted.clear()

    def forget_client(self, node_id: int) -> None:
        """Drop the estimate of a client that is another node from now on.

        What was accepted of other updates is kept: should the node come back, it settles its memory
        by it.
        """
        self.update_sum.forget(node_id)
        if self.codec.feedback.keeps_estimates:
            self._versions.accepted.pop(node_id, None)

    def missed_updates_bits(self, count: int) -> float:
        """Return the formula's bits of ``count`` updates together: H(P(s)) <= s H(P(1))."""
        return count * self.codec.downlink.expected_bits(self._layout)

    def _message(
        self, node: int, configs: dict[tuple[int, int | None, int], ConfigRecord]
    ) -> Message:
        """Return a training message; ``configs`` holds the records that messages share."""
        accepted, version = self._versions.accepted.get(node, 0), self._versions.following(node)
        key = accepted, version, self._refused.get(node, 0)
        if key not in configs:
            head = Head(self.codec.digest, accepted, self._versions.current)
            updates = None if version is None else self._versions.updates_since(version)
            configs[key] = pack_settings(self.config, head, updates)
            if node in self._refused:
                configs[key][REFUSED] = self._refused[node]
        content = RecordDict({CONFIG: configs[key]})
        if version is None:
            content[ARRAYS] = self.model
        elif self.settings.buffers:
            content[BUFFERS] = self.buffers(self.model)
        return Message(content, dst_node_id=node, message_type=self.train_type)
