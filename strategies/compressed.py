"""Strategies composed of compressors, error feedback and a server optimiser."""

from typing import Annotated

from pydantic import Field
from pydantic.dataclasses import dataclass

from .codec import Codec
from .compressed_server import CompressedStrategy
from .compression import COMPRESSORS, FEEDBACK
from .registry import Part


@dataclass(kw_only=True, eq=False)
class Compressed(CompressedStrategy):
    """Compressed: any compressors up and down, with any error feedback and server optimiser.

    Each is given by its name, ``"sparse"`` or ``"package.module:Class"``, or with arguments as a
    table, ``{name = "sparse", sparsity = 0.01}``. The other compressed strategies are such
    compositions, except signsgd, whose server counts votes.

    Args:
        uplink: Compresses the clients' updates.
        downlink: Compresses the server's update; "float32" sends clients the full model.
        feedback: What clients do about what compression leaves out: "none", "residual" (add it to
            the next update) or, for uplinks with a sparsity, "momentum".
        warmup_rounds: Rounds until the share of sent entries has fallen to the uplink's.

    The others are those of `CompressedStrategy`.
    """

    uplink: Part = "sparse"
    downlink: Part = "float32"
    feedback: Part = "residual"
    warmup_rounds: Annotated[int, Field(ge=0)] = 0

    def make_codec(self) -> Codec:
        """Return how server and clients compress."""
        uplink = COMPRESSORS.build_part("uplink", self.uplink)
        downlink = COMPRESSORS.build_part("downlink", self.downlink)
        feedback = FEEDBACK.build_part("feedback", self.feedback)
        return Codec(uplink, downlink, feedback, self.warmup_rounds)
