"""SparseLoCo: many local steps, then two bits of few entries, with decaying error feedback.

A. Sarfi, B. Thérien, J. Lidin, E. Belilovsky: Communication Efficient LLM Pre-training with
SparseLoCo. 2025, arXiv 2508.15706. In every round a client r, whose e_r is zero at first, does

    D_r <- AdamW(W, H local steps) - W     the change              keys of the run
    e_r <- beta e_r + D_r                  what was left, plus it  `compressed_client.compressed`
    s_r <- Q(top-k(e_r) of every chunk)    what is sent            `compression.chunked.Chunked`
    e_r <- e_r - s_r                       what is left            `compressed_client.compressed`

and the server W <- W + alpha mean_r s_r, in `CompressedStrategy.step`. (The paper's changes have
the opposite sign.) e_r takes the place of DiLoCo's momentum on the server. It loses s_r once the
server has used the reply: the paper's replies are never lost.
"""

from pydantic.dataclasses import dataclass

from .compressed_server import CompressedStrategy
from .compression.chunked import Chunked, ValueBits
from .compression.codec import Codec
from .compression.floats import Float32
from .registry import Count, FeedbackDecay, Share


@dataclass(kw_only=True, eq=False)
class SparseLoCo(CompressedStrategy):
    """SparseLoCo: clients send two bits of the largest entries, whose rest decays.

    The server sends the full model, and changes it by the plain mean: alpha = 1. For another
    alpha give ``server_optimizer = {name = "sgd", momentum = 0.0, learning-rate = alpha}``.

    Args:
        sparsity: p, the share of each chunk's entries that a client sends.
        chunk: Entries of a chunk.
        bits: Of a value: 2, or 32 for float32.
        feedback_decay: beta in (0, 1]; a client adds beta times what was left out of its updates.

    The others are those of `CompressedStrategy`.
    """

    sparsity: Share = 1 / 64
    chunk: Count = 4096
    bits: ValueBits = 2
    feedback_decay: FeedbackDecay = 0.95

    def make_codec(self) -> Codec:
        """Return how clients compress; the server does not, and has no residual."""
        uplink = Chunked(self.sparsity, self.chunk, self.bits)
        return Codec(uplink, Float32(), feedback_decay=self.feedback_decay)
