"""What both ends of a compressed strategy compress with, and the digest that says so.

Each end makes its own from the run's config. Two that differ, such as those of a client with other
``strategy-args``, have other digests: the bytes of one end would decode to something else at the
other, often without an error.
"""

import zlib
from dataclasses import dataclass, field, is_dataclass
from functools import cached_property

from strategies.compression import warm_up
from strategies.compression.compressor import Compressor
from strategies.compression.error_feedback import (
    ErrorFeedback,
    NoFeedback,
    Residual,
    check_contraction,
)


@dataclass(frozen=True)
class Codec:
    """Compressors, error feedback and warm-up of a compressed strategy.

    Args:
        uplink: Compresses the clients' updates.
        downlink: Compresses the server's update of the global model.
        feedback: What clients do about what compression leaves out.
        warmup_rounds: The first rounds, in which the share of sent entries falls to the uplink's.

    Raises:
        ValueError: Error feedback would diverge with these compressors, or the uplink has no share
            of entries to warm up.
    """

    uplink: Compressor
    downlink: Compressor
    feedback: ErrorFeedback = field(default_factory=Residual)
    warmup_rounds: int = 0

    def __post_init__(self) -> None:
        self.feedback.check_compressor(self.uplink)
        if not isinstance(self.feedback, NoFeedback):
            check_contraction("downlink", self.downlink)  # the server keeps a residual, too
        warm_up.check_warm_up(self.uplink, self.warmup_rounds)

    def uplink_in(self, server_round: int) -> Compressor:
        """Return the clients' compressor for a round, which differs in warm-up rounds."""
        return warm_up.in_round(self.uplink, server_round, self.warmup_rounds)

    def __str__(self) -> str:
        """Return the parts with their arguments, in ASCII, as docs/protocol.md lists them."""
        parts = (self.uplink, self.downlink, self.feedback)
        # Others than dataclasses have no text that is the same in every process.
        texts = [repr(one) if is_dataclass(one) else type(one).__name__ for one in parts]
        return " ".join([*texts, str(self.warmup_rounds)])

    @cached_property
    def digest(self) -> int:
        """The CRC-32 of the text, which every message and reply names."""
        return zlib.crc32(str(self).encode())
