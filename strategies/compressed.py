"""Compressed strategies put together from compressors, error feedback and a server optimiser."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from strategies import compression
from strategies import server_optimizer as server_optimizers
from strategies.codec import Codec
from strategies.compressed_server import CompressedStrategy


@dataclass(kw_only=True, eq=False)
class Preset(CompressedStrategy):
    """A compressed strategy whose arguments are fields, and make its codec.

    Args:
        weights: How clients count in the mean: "uniform" or "samples", n_k.
        server_optimizer: Turns the mean update into the change of the model: "none", "sgd", "adam"
            or "yogi", or a table with arguments (`strategies.server_optimizer`).

    Raises:
        ValueError: An argument is out of its range.
    """

    weights: str = "uniform"
    server_optimizer: str | Mapping[str, Any] = server_optimizers.NONE

    def __post_init__(self) -> None:
        super().__init__(
            self.make_codec(),
            weights=self.weights,
            server_optimizer=self.server_optimizer,
        )

    @abstractmethod
    def make_codec(self) -> Codec:
        """Return what both ends compress with."""


@dataclass(kw_only=True, eq=False)
class Compressed(Preset):
    """Compressed: any compressor up and any down, with any error feedback and server optimiser.

    Each is given by its name, ``"sparse"`` or ``"package.module:Class"``, or with arguments as a
    table, ``{name = "sparse", sparsity = 0.01}``. The other compressed strategies are such
    compositions, but for signsgd, whose server counts votes.

    Args:
        uplink: Compresses the clients' updates.
        downlink: Compresses the server's update; "float32" sends clients the full model.
        feedback: What clients do about what compression leaves out: "none", "residual" (add it to
            the next update), "ef21" or, for uplinks with a sparsity, "momentum".
        warmup_rounds: The first rounds, in which the share of sent entries falls to the uplink's.

    The others are those of `Preset`.
    """

    uplink: str | Mapping[str, Any] = "sparse"
    downlink: str | Mapping[str, Any] = "float32"
    feedback: str | Mapping[str, Any] = "residual"
    warmup_rounds: int = 0

    def make_codec(self) -> Codec:
        """Return what both ends compress with."""
        return Codec(
            compression.COMPRESSORS.build_part("uplink", self.uplink),
            compression.COMPRESSORS.build_part("downlink", self.downlink),
            compression.FEEDBACK.build_part("feedback", self.feedback),
            self.warmup_rounds,
        )
