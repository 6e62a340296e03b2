"""Selection of each client in turn."""

from collections.abc import Sequence

from ..rounds.values import Round
from . import Candidate, Selection


class RoundRobin(Selection):
    """The clients whose last turn is longest ago take part; of equal ones, the first."""

    def __init__(self) -> None:
        self.turns: dict[int, int] = {}  # by number, counted from 1: the last one
        self.count = 0

    def select(self, now: Round, available: Sequence[Candidate], count: int) -> Sequence[int]:
        """Return the places of the next clients."""
        turns = [self.turns.get(client.number, 0) for client in available]
        chosen = sorted(range(len(available)), key=turns.__getitem__)[:count]
        self.turns |= {available[p].number: self.count + turn for turn, p in enumerate(chosen, 1)}
        self.count += len(chosen)
        return chosen
