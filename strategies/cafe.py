"""CAFe: error feedback whose memory is the server's, for clients that keep nothing.

T. Ortega, C.-Y. Huang, X. Li, H. Jafarkhani: Communication Compression for Distributed Learning
with Aggregate and Server-Guided Feedback. 2025, arXiv 2512.22623. With the global update D, which
is zero at first, every round is

    D_n <- x_n - x          the change of client n       keys of the run
    q_n <- C(D_n - D)       what it sends                `compressed_client.compressed`
    D   <- D + mean_n q_n   the next global update       `CAFe.step`
    x   <- x + D

The more alike two rounds are, the less there is to compress. Clients are sent x and D.
"""

from dataclasses import field, replace
from typing import ClassVar

from pydantic.dataclasses import dataclass

from .base import Aggregate, Broadcast, Round, Vector
from .compressed_server import CompressedStrategy
from .compression import COMPRESSORS
from .compression.codec import Codec
from .compression.floats import Float32
from .registry import Part, read_part
from .rounds.messages import LAST_UPDATE


@dataclass(kw_only=True, eq=False)
class CAFe(CompressedStrategy):
    """CAFe: clients without memory send their change less the last global update, compressed.

    Messages to clients are twice as large as FedAvg's from the second round on.

    Args:
        uplink: Compresses what clients send: a name, or a table with its arguments.

    The others are those of `CompressedStrategy`, but for late replies, whose D would be an old one.

    Attributes:
        last_update: D, float32 (n,); None before the first round.
    """

    updates_evaluation: ClassVar[bool] = False

    uplink: Part = "sparse"
    max_staleness: int = field(default=0, init=False)
    staleness: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.last_update: Vector | None = None

    def make_codec(self) -> Codec:
        """Return how clients compress; they are sent the full model."""
        return Codec(COMPRESSORS.build(*read_part("uplink", self.uplink)), Float32(), "aggregate")

    def broadcast(self, now: Round, node: int) -> Broadcast:
        """Return the model and D."""
        sent = super().broadcast(now, node)
        last = self.last_update
        return sent if last is None else replace(sent, vectors={LAST_UPDATE: last})

    def step(self, now: Round, aggregate: Aggregate) -> Vector:
        """Return the next model, moved by D."""
        mean = aggregate.mean if self.last_update is None else aggregate.mean + self.last_update
        vector = super().step(now, replace(aggregate, means=[mean]))
        self.last_update = now.model.layout.rounded(mean)
        return vector

    def bits_down(self, now: Round, node: int) -> float:
        """Return 32 bits for each entry of the model and of D."""
        last = 0 if self.last_update is None else now.model.layout.size
        return 32.0 * (now.model.size + last)
