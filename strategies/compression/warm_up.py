"""A share of sent entries that falls to p over the first rounds.

Lin et al. 2018, arXiv 1712.01887, section 3.3.
"""

from dataclasses import is_dataclass, replace

from strategies.compression.compressor import Compressor
from strategies.compression.whole_numbers import check_whole


def check_warm_up(compressor: Compressor, rounds: int) -> int:
    """Return ``rounds``.

    Raises:
        ValueError: It is negative, or above 0 for a compressor without an argument "sparsity".
    """
    check_whole("warmup-rounds", rounds, 0)
    if rounds and not (is_dataclass(compressor) and hasattr(compressor, "sparsity")):
        name = type(compressor).__name__
        raise ValueError(f"warmup-rounds = {rounds}: {name} has no argument 'sparsity'")
    return rounds


def in_round(compressor: Compressor, server_round: int, rounds: int) -> Compressor:
    """Return the compressor for a round, the first being 1.

    In round t of W rounds of warm-up the share of entries is p^(t / (W + 1)): for p = 0.001 and
    W = 4 the paper's 25 %, 6.25 %, 1.6 % and 0.4 %, and 0.1 % from then on.
    """
    if server_round > rounds:
        return compressor
    sparsity: float = compressor.sparsity  # type: ignore[attr-defined]
    warm = sparsity ** (max(server_round, 1) / (rounds + 1))
    return replace(compressor, sparsity=warm)  # type: ignore[type-var]
