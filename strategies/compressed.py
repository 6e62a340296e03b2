"""A compressed strategy put together from compressors by name."""

from collections.abc import Mapping
from typing import Any

from strategies import compression
from strategies.compressed_server import CompressedStrategy
from strategies.compression.compressor import Compressor


class Compressed(CompressedStrategy):
    """Compressed: any compressor up and any down, with or without error feedback.

    A compressor is given by its name, ``"sparse"`` or ``"package.module:Class"``, or with arguments
    as a table, ``{name = "sparse", sparsity = 0.01}``.

    Args:
        uplink: Compresses the clients' updates.
        downlink: Compresses the server's update; "float32" sends clients the full model.
        error_feedback: Whether both ends add what they did not send to their next update.
        weights: How clients count in the mean: "uniform" or "samples", n_k.

    Raises:
        ValueError: An argument cannot be used.
    """

    def __init__(
        self,
        uplink: str | Mapping[str, Any] = "sparse",
        downlink: str | Mapping[str, Any] = "float32",
        error_feedback: bool = True,
        weights: str = "uniform",
    ) -> None:
        super().__init__(
            _compressor("uplink", uplink),
            _compressor("downlink", downlink),
            error_feedback=error_feedback,
            weights=weights,
        )


def _compressor(key: str, given: str | Mapping[str, Any]) -> Compressor:
    arguments = {"name": given} if isinstance(given, str) else dict(given)
    name = arguments.pop("name", None)
    if not isinstance(name, str):
        raise ValueError(f'{key} = {given!r}: give a name, or {{name = "sparse", sparsity = 0.01}}')
    return compression.build(name, {k.replace("-", "_"): v for k, v in arguments.items()})
