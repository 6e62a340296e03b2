"""Late replies that count: how late a reply is, and how much it counts.

J. Nguyen, K. Malik, H. Zhan, A. Yousefpour, M. Rabbat, M. Malek, D. Huba: Federated Learning with
Buffered Asynchronous Aggregation. AISTATS 2022, arXiv 2106.06639.
"""

from typing import Annotated

from pydantic import Field

from .reply_errors import ReplyError

Exponent = Annotated[float, Field(ge=0, le=10)]
NumRounds = Annotated[int, Field(ge=0, le=10_000)]


def rounds_late(answered: int, now: int, max_staleness: int) -> int:
    """Return how many rounds late a reply is, by the round that it answers.

    Raises:
        ReplyError: It is later than ``max_staleness`` rounds, or answers a round to come.
    """
    if not max(now - max_staleness, 1) <= answered <= now:
        late = f"max-staleness is {max_staleness}"
        raise ReplyError(f"it answers round {answered}, and this is round {now}; {late}")
    return now - answered


def staleness_weight(late: int, exponent: float) -> float:
    """Return (1 + s)^-a of a reply that is s rounds late."""
    return float((1.0 + late) ** -exponent)
