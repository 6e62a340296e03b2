"""Strategies composed of compressors and error feedback: `compressed`, and methods with a name.

`topk`, `qsgd` and `eden` are here; `strategies.stc` and `strategies.signsgd` have their own
files. All take the arguments of `CompressedStrategy` besides their own.
"""

from typing import Literal

from pydantic.dataclasses import dataclass

from .compressed_server import CompressedStrategy
from .compression import COMPRESSORS
from .compression.codec import Codec
from .compression.floats import Float32
from .compression.quantized import Bits, Norm, Quantized
from .compression.rotated import Bits as RotatedBits
from .compression.rotated import Rotated
from .compression.sparse import Sparse
from .registry import Count, FeedbackDecay, Part, Scope, Share, read_part


@dataclass(kw_only=True, eq=False)
class Compressed(CompressedStrategy):
    """Compressed: any compressors up and down, with or without error feedback.

    Each is given by its name, ``"sparse"`` or ``"package.module:Class"``, or with arguments as a
    table, ``{name = "sparse", sparsity = 0.01}``. The other compressed strategies are such
    compositions, except signsgd, whose server counts votes.

    Args:
        uplink: Compresses the clients' updates.
        downlink: Compresses the server's update; "float32" sends clients the full model.
        feedback: What clients do about what compression leaves out: "none", or "residual" (add it
            to the next update).
        feedback_decay: beta in (0, 1]; clients add beta times what was left out, the server always
            all of it.
    """

    uplink: Part = "sparse"
    downlink: Part = "float32"
    feedback: Literal["none", "residual"] = "residual"
    feedback_decay: FeedbackDecay = 1.0

    def make_codec(self) -> Codec:
        """Return how server and clients compress."""
        uplink = COMPRESSORS.build(*read_part("uplink", self.uplink))
        downlink = COMPRESSORS.build(*read_part("downlink", self.downlink))
        return Codec(uplink, downlink, self.feedback, feedback_decay=self.feedback_decay)


@dataclass(kw_only=True, eq=False)
class TopK(CompressedStrategy):
    """Top-k: clients send their largest entries unchanged, with error feedback.

    "Gradient dropping", one of the methods that STC is compared to. A. F. Aji, K. Heafield: Sparse
    Communication for Distributed Gradient Descent. EMNLP 2017, arXiv 1704.05021; as in Sattler et
    al. 2020, without momentum correction, clipping or warm-up. With the default sparsity_down = 1
    the server sends all entries, and clients download the full model. A smaller value makes the
    server's updates sparse, too.

    Args:
        sparsity_up: p of the clients' updates: the share of entries they send.
        sparsity_down: p of the server's.
        scope: Where entries are selected from: each "tensor", or the whole "model".
    """

    sparsity_up: Share = 1 / 100
    sparsity_down: Share = 1.0
    scope: Scope = "tensor"

    def make_codec(self) -> Codec:
        """Return how server and clients compress."""
        down = Float32() if self.sparsity_down == 1 else Sparse(self.sparsity_down, self.scope)
        return Codec(Sparse(self.sparsity_up, self.scope), down)


@dataclass(kw_only=True, eq=False)
class QSGD(CompressedStrategy):
    """QSGD: clients send every entry as a sign and one of few levels, drawn without bias.

    D. Alistarh et al.: QSGD: Communication-Efficient SGD via Gradient Quantization and Encoding.
    NeurIPS 2017, arXiv 1610.02132. The server sends the full model. There is no error feedback: the
    mean over clients and rounds has no error to feed back.

    Args:
        bits: Bits per entry, from 2 to 8.
        bucket: How many entries share a norm.
        norm: "l2", the paper's, or "max", the largest magnitude.
    """

    bits: Bits = 4
    bucket: Count = 512
    norm: Norm = "l2"

    def make_codec(self) -> Codec:
        """Return how server and clients compress."""
        return Codec(Quantized(self.bits, self.bucket, self.norm), Float32(), "none")


@dataclass(kw_only=True, eq=False)
class EDEN(CompressedStrategy):
    """EDEN: clients rotate their updates at random and send one to four bits an entry.

    With one bit it is DRIVE. S. Vargaftik et al.: EDEN: Communication-Efficient and Robust
    Distributed Mean Estimation for Federated Learning. ICML 2022, arXiv 2108.08842. The server
    sends the full model. There is no error feedback: the mean over clients and rounds has no error
    to feed back.

    Args:
        bits: Bits per entry, from 1 (DRIVE) to 4.
    """

    bits: RotatedBits = 1

    def make_codec(self) -> Codec:
        """Return how server and clients compress."""
        return Codec(Rotated(self.bits), Float32(), "none")
