"""Buffered asynchronous aggregation.

J. Nguyen, K. Malik, H. Zhan, A. Yousefpour, M. Rabbat, M. Malek, D. Huba: Federated Learning with
Buffered Asynchronous Aggregation. AISTATS 2022, arXiv 2106.06639, Algorithm 1.
"""

from typing import Annotated, ClassVar

from pydantic import Field
from pydantic.dataclasses import dataclass

from .base import Aggregate, Reply, ReplyError, Round, Terms, Vector, change_norm, difference
from .fedavg import FedAvg
from .registry import Count, Weights

Exponent = Annotated[float, Field(ge=0, le=10)]
NumRounds = Annotated[int, Field(ge=0, le=10_000)]


@dataclass(kw_only=True, eq=False)
class FedBuff(FedAvg):
    """FedBuff: a round ends with the first replies, and late replies count in later rounds.

    The paper's buffer of K updates is the config's C clients; (1 + over-selection) times as many
    train at a time. A reply to round t that arrives in round u counts with s = (1 + u - t)^-a: the
    next model is w + sum_k (n_k / n) s_k (w_k - w_t). Without over-selection no reply is late, and
    this is FedAvg. Nor is any late in another app: Flower's `start` drops late replies.

    Args:
        staleness: a; the paper's is 0.5.
        max_staleness: Replies that are more rounds late are rejected. The server keeps the models
            of this many rounds.
        weights: "samples" (n_k), or "uniform", as in the paper and by default in this project's
            app.

    The others are those of `strategies.fedavg.FedAvg`.
    """

    paper_weights: ClassVar[Weights] = "uniform"

    staleness: Exponent = 0.5
    max_staleness: Count = 50

    def __post_init__(self) -> None:
        super().__post_init__()
        self._models: dict[int, Vector] = {}  # by round, the model that clients began with

    @property
    def takes_late(self) -> bool:
        """True."""
        return True

    def begin(self, now: Round) -> None:
        """Keep the round's model until its last reply can have arrived."""
        self._models.setdefault(now.number, now.model.vector)
        for number in [kept for kept in self._models if kept < now.number - self.max_staleness]:
            del self._models[number]

    def read(self, now: Round, reply: Reply) -> Terms:
        """Return s_k (w_k - w_t), float64.

        Raises:
            ReplyError: It is too late, or names no round.
        """
        answered = self._answered(now, reply)
        change = difference(reply.vector, self._models[answered], float)
        return (change * staleness_weight(now.number - answered, self.staleness),)

    def update_norm(self, now: Round, terms: Terms, reply: Reply) -> float:
        """Return the norm of w_k - w_t."""
        return change_norm(reply.vector, self._models[self._answered(now, reply)])

    def step(self, now: Round, aggregate: Aggregate) -> Vector:
        """Return w plus the mean change, passed through the server optimiser if there is one."""
        change = aggregate.mean
        if self.optimizer is not None:
            change = self.optimizer.step(change)
        return now.model.vector + change

    def _answered(self, now: Round, reply: Reply) -> int:
        """Return t; Flower's `start` names no round, and drops late replies."""
        number = now.number if reply.server_round is None else reply.server_round
        rounds_late(number, now.number, self.max_staleness)
        return number


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
