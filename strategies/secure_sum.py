"""Secure sum: the server sees the sum of the clients' compressed updates, and no single one.

K. Bonawitz et al.: Practical Secure Aggregation for Privacy-Preserving Machine Learning. CCS 2017.
Its protocol, with figure 4's names; a round has these exchanges, and needs t = floor(2 n / 3) + 1
of the n clients in each:

    advertise   u sends public keys c_u and s_u            `SecureClient`, `strategies.secure`
    share       u splits its secrets into n shares, any t of which give them, encrypted for each v
    mask        u trains, and sends y_u = x_u + PRG(b_u) + sum_(v > u) PRG(s_uv)
                                              - sum_(v < u) PRG(s_uv)   modulo 2^r
    sign        u signs the set of those whose y arrived, where clients have signing keys
    unmask      u sends its share of b_v for each v in that set, of s_v for each v that was lost
    sum         sum_u x_u = sum_u y_u - masks

x_u are the update's entries at positions that all clients of the round share, as whole numbers of
one scale (`compression.shared_entries`), with error feedback as in all compressed strategies.
"""

import logging
import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic.dataclasses import dataclass

from .base import (
    Aggregate,
    Ask,
    Broadcast,
    ClientMemory,
    Model,
    Received,
    Reply,
    ReplyError,
    Round,
    RunSettings,
    Terms,
    Train,
    Update,
    Vector,
)
from .compressed_server import CompressedStrategy
from .compression.codec import Codec
from .compression.decoded_update import DecodeError
from .compression.shared_entries import MIN_SCALE, RANGE, NumberBits, SharedEntries, bounded
from .compression.sparse import Sparse
from .registry import Share, Weights
from .rounds.messages import SECURE, random_stream
from .secure.client import SecureClient, signed_set
from .secure.masked_numbers import EXTRAS, read_sum, ring_bits, unpack_words
from .secure.messages import (
    GRID,
    KEYS,
    SEALED,
    SIGNED_KEYS,
    Request,
    Stage,
    write_places,
    write_rows,
    write_survivors,
)
from .secure.primitives import SHARE, SIGNATURE, Words
from .secure.server import Cohort, Parse, masks_of, rows_of, sized, valid

logger = logging.getLogger("fedavg_app.strategies")

POSITIONS = "positions"  # what the server draws the seed of a round's positions for
MUCH_CLIPPED = 0.01


@dataclass(kw_only=True, eq=False)
class SecureSum(CompressedStrategy):
    """Secure sum: clients send masked numbers, of which the server learns the sum only.

    The first round measures how large the clients' updates are, and leaves the model as it is;
    every later one clips values at c, four times the root mean square of the round before (the
    geometric mean of the clients'). With fewer than t clients left in any stage, a round changes
    nothing, and clients keep their updates in their residuals.

    Args:
        sparsity: p, the share of the entries that is sent, up and down.
        bits: Of a client's numbers.
        signed: Whether clients sign, which protects them against a server that cheats: each node's
            config must name its signing key and its peers' (`strategies.secure.identity`). Without,
            the server is trusted to follow the protocol ("honest but curious").

    The others are those of `CompressedStrategy`, but for late replies and weights.

    Attributes:
        scale: c of the next round.
    """

    hides_clients: ClassVar[bool] = True

    sparsity: Share = 1 / 4
    bits: NumberBits = 4
    signed: bool = False
    weights: Weights = field(default="uniform", init=False)
    max_staleness: int = field(default=0, init=False)
    staleness: float = field(default=0.0, init=False)
    fraction_evaluate: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._secure = SecureClient(self._clients)
        self.scale = MIN_SCALE
        self._cohort = Cohort((), 0, 0.0)

    @property
    def headline(self) -> str:
        """What the server learns, and what is assumed of it."""
        kind = "it may cheat" if self.signed else "honest but curious"
        return (
            f"Secure sum: the server ({kind}) sees the sum of the clients' updates, no single one"
        )

    def make_codec(self) -> Codec:
        """Return p n shared entries up, and the entries of their mean down."""
        return Codec(SharedEntries(self.sparsity, self.bits), Sparse(self.sparsity, "model"))

    def check(self, model: Model, settings: RunSettings) -> None:
        """Refuse what would need, or show the server, the numbers of single clients."""
        given = {
            "max-update-norm": settings.bounds.max_update_norm < math.inf,
            "selection": settings.selection not in ("uniform", "round-robin"),
        }
        if refused := [key for key, is_given in given.items() if is_given]:
            raise ValueError(f"secure-sum hides single clients' updates: leave out {refused[0]}")
        if model.buffers:
            names = ", ".join(list(model.buffers)[:3])
            fix = "give a network without, as with group normalisation"
            raise ValueError(f"secure-sum would send the buffers {names}, ... unmasked; {fix}")

    def client(
        self, received: Received, memory: ClientMemory, train: Train
    ) -> tuple[Update, ClientMemory | None]:
        """Answer a stage of the round; in one of them, train."""
        return self._secure.answer(received, memory, train)

    def exchanges(
        self, now: Round, nodes: Sequence[int]
    ) -> Generator[Ask, Aggregate, Vector | None]:
        """Yield the stages of the round; return the next model's vector.

        Raises:
            ReplyError: Fewer than t clients are left, or what was unmasked is no sum of updates.
        """
        rng = random_stream(now.settings.seed, POSITIONS, 0, now.number)
        seed = int(rng.integers(1, 2**64, dtype=np.uint64))
        cohort = self._cohort = Cohort(nodes, seed, self.scale)
        row = SIGNED_KEYS if self.signed else KEYS

        stage = Stage.ADVERTISE
        asked = yield self._ask(stage, nodes, b"", lambda data: sized(data, row))
        keys = cohort.of(stage, asked)
        listed = write_rows(keys)

        stage = Stage.SHARE
        asked = yield self._ask(
            stage,
            asked.nodes,
            listed,
            lambda data: rows_of(data, SEALED, keys),
        )
        sealed = cohort.of(stage, asked)

        stage, grid = Stage.MASK, GRID.pack(seed, cohort.scale)
        masked = yield self._ask(
            stage,
            asked.nodes,
            lambda place: grid + write_rows({own: rows[place] for own, rows in sealed.items()}),
        )
        survivors, nodes, signatures = cohort.left(stage, masked), masked.nodes, {}
        named = write_places(survivors)

        if self.signed:
            stage = Stage.SIGN
            asked = yield self._ask(
                stage,
                nodes,
                named,
                lambda data: sized(data, SIGNATURE),
            )
            nodes, text = asked.nodes, signed_set(listed, named)
            signatures = valid(cohort.of(stage, asked), keys, text)

        stage, body = Stage.UNMASK, write_survivors(survivors, signatures)
        asked = yield self._ask(
            stage,
            nodes,
            body,
            lambda data: rows_of(data, SHARE, sealed, some=True),
        )
        shares = cohort.of(stage, asked)
        words = np.rint(masked.mean * len(survivors)).astype(np.uint64).astype(np.uint32)
        words -= masks_of(len(words), cohort.threshold, keys, sealed, survivors, shares)
        return self.step(now, Aggregate(masked.nodes, [self._mean(now, words, len(survivors))]))

    def _ask(
        self,
        stage: Stage,
        nodes: Sequence[int],
        body: bytes | Callable[[int], bytes],
        parse: Parse | None = None,
    ) -> Ask:
        """Return what a stage asks, by the clients' places; without ``parse``, the one to train."""
        cohort, trains = self._cohort, parse is None

        def broadcast(now: Round, node: int) -> Broadcast:
            place = cohort.places[node]
            own = body if isinstance(body, bytes) else body(place)
            head = now.number, place, len(cohort.nodes)
            request = Request(stage, self.signed, self.codec.training, *head, own).encode()
            if not trains:
                return Broadcast({SECURE: request}, full=False)
            sent = self.broadcast(now, node)
            return replace(sent, entries={**sent.entries, SECURE: request})

        def read(now: Round, reply: Reply) -> Terms:
            if parse is None:
                return self._masked(now, reply)
            cohort.note(stage, reply.node, reply.payload, parse)
            return ()

        return Ask(nodes, self.train_type, broadcast, read, is_main=trains, has_metrics=False)

    def _masked(self, now: Round, reply: Reply) -> Terms:
        """Return the masked words of a reply, float64, whose sums are exact."""
        payload, _ = self._payload(now, reply)
        uplink = self._uplink
        try:
            count, bits = uplink.count(now.model.layout.size), self._ring_bits
            words = unpack_words(payload.update, count, bits)
        except DecodeError as error:
            raise ReplyError(f"undecodable update: {error}") from error
        self._replies[reply.node] = replace(payload, update=b"")
        return (words.astype(np.float64),)

    def _mean(self, now: Round, words: Words, clients: int) -> NDArray[np.float64]:
        """Return the mean update of so many clients, whose unmasked words these are."""
        uplink, cohort = self._uplink, self._cohort
        try:
            total = read_sum(words, clients, self._ring_bits, 2 * uplink.zero)
        except DecodeError as error:
            raise ReplyError(str(error)) from error
        self.scale = bounded(RANGE * total.root_mean_square)
        if cohort.scale > MIN_SCALE and total.clipped > MUCH_CLIPPED:
            text = "round %d: %.1f %% of the clients' values were clipped at %.3g"
            logger.info(text, now.number, 100 * total.clipped, cohort.scale)
        layout = now.model.layout
        update = uplink.update_of(total.numbers, clients, cohort.seed, cohort.scale, layout)
        return update.to_dense().astype(np.float64)

    @property
    def _uplink(self) -> SharedEntries:
        assert isinstance(self.codec.uplink, SharedEntries)
        return self.codec.uplink

    @property
    def _ring_bits(self) -> int:
        return ring_bits(self.bits, len(self._cohort.nodes))

    def bits_down(self, now: Round, node: int) -> float:
        """Return the bits of the update, of n clients' keys and shares, and of the survivors."""
        row = SIGNED_KEYS + 2 + SIGNATURE if self.signed else KEYS
        stages = len(self._cohort.nodes) * (row + SEALED + 2 * self.signed + 6)
        return super().bits_down(now, node) + 8.0 * stages

    def bits_up(self, now: Round, node: int) -> float:
        """Return the bits of the keys, of n clients' shares twice, and of the masked numbers."""
        row = SIGNED_KEYS + SIGNATURE if self.signed else KEYS
        stages = row + len(self._cohort.nodes) * (SEALED + SHARE + 4) + 4 * EXTRAS
        return 8.0 * stages + float(self._ring_bits * self._uplink.count(now.model.layout.size))

    def __getstate__(self) -> dict[str, Any]:
        """Return the state that outlasts a round."""
        return {**super().__getstate__(), "_cohort": Cohort((), 0, 0.0)}
