"""`Preset`: what the compressed strategies of papers have in common."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from strategies.codec import Codec
from strategies.compressed_server import CompressedStrategy
from strategies.server_optimizer import NONE


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
    server_optimizer: str | Mapping[str, Any] = NONE

    def __post_init__(self) -> None:
        super().__init__(
            self.make_codec(),
            weights=self.weights,
            server_optimizer=self.server_optimizer,
            client_settings=self.client_settings(),
        )

    @abstractmethod
    def make_codec(self) -> Codec:
        """Return what both ends compress with."""

    def client_settings(self) -> dict[str, float | str]:
        """Return further keys of the training config, for clients in other languages."""
        return {}
