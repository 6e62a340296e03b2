"""The server's end of every compressed strategy (docs/protocol.md).

Clients send compressed updates. The server turns each round's into one compressed update of the
global model and changes the model by exactly that. It keeps the last of these updates: a client
that missed some gets those it missed, one after the other, which is the papers' partial sum P(s),
exact to the last bit; or the full model where that is smaller, or where the client is new or has
forgotten.
"""

from abc import abstractmethod
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid

from strategies import synced
from strategies.aggregation import l2_norm
from strategies.arrays import from_record, to_record
from strategies.base import CohortStrategy
from strategies.compression import theory
from strategies.compression.layout import Layout
from strategies.compression.update import CodecError, Update, Vector
from strategies.raw import raw_array, raw_bytes
from strategies.records import array_record
from strategies.screening import ARRAYS, CONFIG, ReplyError, check_metrics, check_norm
from strategies.synced import Entry, Head, Version


@dataclass(frozen=True)
class _Client:
    """What a client last confirmed: its version, and how many updates there were by then."""

    version: int
    updates_made: int


class CompressedStrategy(CohortStrategy):
    """A strategy whose clients send updates in a compressed form and are sent such updates.

    Subclasses implement `settings`, `decode_update`, `combine`, the two figures of theory, and
    `client_mod` by means of `strategies.compressed_client`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.layout = Layout((), ())
        self._arrays: ArrayRecord | None = None
        self._model: Vector = np.empty(0, np.float32)
        self._version = Version(0, 0)
        self._chain: deque[Entry] = deque()
        self._base = 0  # the number of the oldest version that the chain leads on from
        self._updates_made = 0
        self._clients: dict[int, _Client] = {}
        # The round of each node's last accepted update. Never dropped: a client that lost its model
        # may still hold the update that this settles.
        self._accepted: dict[int, int] = {}
        self._received: dict[int, Update] = {}
        self._round = 0

    @abstractmethod
    def settings(self) -> dict[str, float | str]:
        """Return what the client's end must know; it is sent in the record "config"."""

    @abstractmethod
    def decode_update(self, data: bytes) -> Update:
        """Return a client's update.

        Raises:
            CodecError: The bytes are not such an update for ``self.layout``.
        """

    @abstractmethod
    def combine(self, updates: Sequence[Update], replies: Sequence[Message]) -> Update:
        """Return the update of the global model, as it will be sent, from those of the clients."""

    @abstractmethod
    def theory_update_bits(self) -> tuple[float, float]:
        """Return the papers' figures for one update: (from a client, of the global model)."""

    def theory_reply_bits(self) -> float:
        """Return the papers' figure for one client's update."""
        return self.theory_update_bits()[0]

    def theory_download_bits(self, lacking: int) -> float:
        """Return the papers' figure for a number of updates together: H(P(s)) <= s * H(P(1))."""
        return lacking * self.theory_update_bits()[1]

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """Return one message per node, each with what this client's model lacks.

        Raises:
            ValueError: The model has arrays that are not float32.
        """
        if arrays is not self._arrays:
            self._start_from(arrays, server_round - 1)
        self.sent_arrays, self.sent_config, self._round = arrays, config, server_round
        config["server-round"] = server_round
        for key, value in self.settings().items():
            config[key] = value
        nodes = list(grid.get_node_ids())
        self.theory_bits_down = sum(map(self._theory_bits_to, nodes))
        chains: dict[int, Array] = {}
        return [self._message(node, config, chains) for node in nodes]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Decode the replies, and change the model by their combination, compressed."""
        self._received = {}
        self.recovering = 0
        result = super().aggregate_train(server_round, replies)
        self._received = {}
        return result

    def check_reply(self, reply: Message) -> None:
        """Decode the reply's update.

        Raises:
            ReplyError: The reply must not be used.
        """
        node = reply.metadata.src_node_id
        try:
            payload = raw_bytes(reply.content, synced.UPDATE, synced.PAYLOAD)
            status, number, data = synced.decode_reply(payload)
            if status == synced.NEEDS_MODEL:
                self._clients.pop(node, None)
                self.recovering += 1
                raise ReplyError("it has forgotten its model and gets the full one next time")
            if number != self._version.number:
                raise ReplyError(f"trained from version {number}, not {self._version.number}")
            check_metrics(reply, self.limits)
            update = self.decode_update(data)
        except CodecError as error:
            raise ReplyError(f"undecodable update: {error}") from error
        if update.largest() > synced.LARGEST_CHANGE:
            raise ReplyError(f"the update changes a weight by {update.largest():g}")
        if self.limits.bound_norms:
            check_norm(l2_norm({synced.UPDATE: update.to_dense()}), self.limits)
        self._received[node] = update

    def aggregate(self, replies: list[Message]) -> ArrayRecord:
        """Return the model changed by exactly what clients will be sent.

        Only now are the updates acknowledged: those of a round that had too few are not used, and
        their clients must take them back.
        """
        nodes = [reply.metadata.src_node_id for reply in replies]
        for node in nodes:
            self._clients[node] = _Client(self._version.number, self._updates_made)
            self._accepted[node] = self._round
        update = self.combine([self._received[node] for node in nodes], replies)
        self._model = self._model + update.to_dense()
        self._remember(Entry(self._round, update.encode()))
        named = self.layout.unflatten(self._model)
        self._arrays = to_record(named)
        return self._arrays

    def _start_from(self, arrays: ArrayRecord, number: int) -> None:
        """Take a model that no update of ours led to: nobody has it yet."""
        named = from_record(arrays)
        self.layout = Layout.of(named)
        self._arrays, self._model = arrays, self.layout.flatten(named)
        self._version = Version(number, 0).after(number, self._model.tobytes())
        self._base = number
        self._chain.clear()
        self._clients.clear()

    def _remember(self, entry: Entry) -> None:
        """Add an update to the chain; drop those that only chains longer than the model need."""
        self._version = self._version.after(entry.number, entry.update)
        self._updates_made += 1
        self._chain.append(entry)
        while self._chain and sum(map(len, self._chain)) >= self._model.nbytes:
            self._base = self._chain.popleft().number

    def _message(self, node: int, config: ConfigRecord, chains: dict[int, Array]) -> Message:
        """Return a training message; messages to clients of one version share its content."""
        client = self._clients.get(node)
        head = Head(self._accepted.get(node, 0), self._version)
        sync = {synced.HEAD: raw_array(head.encode())}
        content = RecordDict({CONFIG: config})
        if client is None or client.version < self._base:
            content[ARRAYS] = self.sent_arrays
        else:
            if client.version not in chains:
                ahead = (entry for entry in self._chain if entry.number > client.version)
                chains[client.version] = raw_array(b"".join(entry.encode() for entry in ahead))
            sync[synced.UPDATES] = chains[client.version]
        content[synced.SYNC] = array_record(sync)
        return Message(
            content, dst_node_id=node, message_type=self.train_type, group_id=str(self._round)
        )

    def _theory_bits_to(self, node: int) -> float:
        """Return the papers' figure for the updates a client lacks, at most the full model's."""
        full = theory.dense_bits(self.layout.size)
        if node not in self._clients:
            return full
        lacking = self._updates_made - self._clients[node].updates_made
        return min(self.theory_download_bits(lacking), full)
