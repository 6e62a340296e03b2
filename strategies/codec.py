"""What both ends of a compressed strategy compress with, and a digest that identifies it.

Each end makes its own from the run's config. Two that differ, such as those of a client with other
``strategy-args``, have other digests: the bytes of one end would decode to something else at the
other, often without an error.
"""

import zlib
from dataclasses import dataclass, field, is_dataclass, replace
from functools import cached_property

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
        warmup_rounds: How many rounds the share of sent entries takes to fall to the uplink's.

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
        has_sparsity = is_dataclass(self.uplink) and hasattr(self.uplink, "sparsity")
        if self.warmup_rounds and not has_sparsity:
            name = type(self.uplink).__name__
            raise ValueError(
                f"warmup-rounds = {self.warmup_rounds}: {name} has no argument 'sparsity'"
            )

    def uplink_in(self, server_round: int) -> Compressor:
        """Return the clients' compressor for a round, the first being 1.

        In round t of W rounds of warm-up the share of entries is p^(t / (W + 1)), Lin et al. 2018,
        arXiv 1712.01887, section 3.3: for p = 0.001 and W = 4 the paper's 25 %, 6.25 %, 1.6 % and
        0.4 %, and 0.1 % from then on.
        """
        if server_round > self.warmup_rounds:
            return self.uplink
        sparsity: float = self.uplink.sparsity  # type: ignore[attr-defined]
        warm = sparsity ** (server_round / (self.warmup_rounds + 1))
        return replace(self.uplink, sparsity=warm)  # type: ignore[type-var]

    def __str__(self) -> str:
        """Return the parts with their arguments, in ASCII, as docs/protocol.md lists them."""
        parts = (self.uplink, self.downlink, self.feedback)
        # Only dataclasses have a text that is the same in every process.
        texts = [repr(one) if is_dataclass(one) else type(one).__name__ for one in parts]
        return " ".join([*texts, str(self.warmup_rounds)])

    @cached_property
    def digest(self) -> int:
        """The CRC-32 of the text, which every message and reply names."""
        return zlib.crc32(str(self).encode())
