"""Selections: which clients take part in a round. One module for each.

A selection sees of each client what the server knows (`Candidate`). A name is one of `SELECTIONS`,
or "package.module:Class" of any `Selection`.
"""

import tomllib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from ..registry import Registry
from ..rounds.messages import random_stream
from ..rounds.values import Round

UNIFORM = "uniform"
# The action of the message that asks candidates for the loss on their training examples.
TRAINING_LOSS = "evaluate.training_loss"


@dataclass(frozen=True)
class Candidate:
    """A client that may take part in a round, as the server knows it.

    Attributes:
        node: Its node, whose id is another in every run.
        number: Its number among all clients; in other apps the node.
        num_examples: n_k, its number of training examples; 0 if not known yet.
        device: The name of its class of devices, if "links" simulates a fleet.
        metrics: Those of its last report of a training, such as "train-loss"; among candidates that
            were asked, their "loss" at the model of this round.
        last_round: The last round in which its training was used; 0 for none.
    """

    node: int
    number: int
    num_examples: float = 0.0
    device: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict)
    last_round: int = 0


class Selection(ABC):
    """Chooses the clients of a round. Its attributes are saved with checkpoints.

    Attributes:
        with_replacement: Whether a client may be selected several times, and then counts as often
            in the mean, whose weights are otherwise equal.
    """

    with_replacement: ClassVar[bool] = False

    def candidates(self, now: Round, available: Sequence[Candidate], count: int) -> Sequence[int]:
        """Return the places of those to ask for their loss first; by default of none.

        `select` then sees only those that have answered.
        """
        return ()

    @abstractmethod
    def select(self, now: Round, available: Sequence[Candidate], count: int) -> Sequence[int]:
        """Return the places in ``available`` of the clients that take part.

        Args:
            now: The round.
            available: The clients that may take part, by rising number.
            count: How many are wanted; at most as many as there are.
        """


def generator(now: Round) -> np.random.Generator:
    """Return the random numbers for the selection of a round, fixed by the run's seed."""
    return random_stream(now.settings.seed, "selection", 0, now.number)


SELECTIONS = Registry[Selection](
    Selection,  # type: ignore[type-abstract]
    "selection",
    {
        "by-size": f"{__name__}.by_size:BySize",
        "oort": f"{__name__}.oort:Oort",
        "power-of-choice": f"{__name__}.power_of_choice:PowerOfChoice",
        "round-robin": f"{__name__}.round_robin:RoundRobin",
    },
)


def make_selection(text: str) -> Selection | None:
    """Return the selection that a text describes; None for "uniform", which needs no function.

    Args:
        text: A name, then arguments in TOML, as in "power-of-choice candidates = 20".

    Raises:
        ValueError, ImportError, AttributeError: As for `Registry.build`.
    """
    name, _, given = text.strip().partition(" ")
    if name == UNIFORM:
        return None
    if name not in SELECTIONS.built_in and ":" not in name:
        known = ", ".join([UNIFORM, *SELECTIONS.names()])
        raise ValueError(f"known selections: {known}; or package.module:Class")
    try:
        arguments = tomllib.loads(f"table = {{{given}}}")["table"]
    except tomllib.TOMLDecodeError:
        fix = "write arguments in TOML, a comma between two, as in: power-of-choice candidates = 20"
        raise ValueError(fix) from None
    return SELECTIONS.build(name, {key.replace("-", "_"): arguments[key] for key in arguments})
