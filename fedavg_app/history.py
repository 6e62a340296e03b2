"""What happened in every round, and the papers' measure of it."""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

TRAFFIC = ("bytes_down", "bytes_up", "theory_bits_down", "theory_bits_up")


@dataclass(frozen=True)
class RoundRecord:
    """One line of the history; round 0 is the initial model.

    Attributes:
        round: The round's number.
        participants: How many clients were written to for training.
        rejected: Reason by node id for every training or evaluation reply that was refused, or
            that did not come in time.
        learning_rate: eta in this round.
        train_loss: Mean of the clients' training losses, weighted by n_k.
        test_loss: Mean loss of the new global model on the test set; None if not tested.
        accuracy: Its accuracy there, in [0, 1]; None if not tested.
        client_metrics: Of the clients' own evaluations: the n_k-weighted means, for accuracy also
            the plain mean ("accuracy-mean") and what a tenth of them are below ("accuracy-p10").
        bytes_down: Bytes of the records sent to clients for training.
        bytes_up: Bytes of the records they sent back.
        theory_bits_down: Bits of the same by the papers' formulas: no heads, names or metrics.
        theory_bits_up: Bits of the accepted replies by them.
        total: The same four, summed over all rounds so far.
        seconds: Wall-clock time of the round.
    """

    round: int
    participants: int = 0
    rejected: dict[int, str] = field(default_factory=dict)
    learning_rate: float | None = None
    train_loss: float | None = None
    test_loss: float | None = None
    accuracy: float | None = None
    client_metrics: dict[str, float] = field(default_factory=dict)
    bytes_down: int = 0
    bytes_up: int = 0
    theory_bits_down: float = 0.0
    theory_bits_up: float = 0.0
    total: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0

    def as_json(self) -> dict[str, Any]:
        """Return the record as plain values for one line of JSON; null for what is not finite."""
        return {
            key: None if isinstance(value, float) and not math.isfinite(value) else value
            for key, value in asdict(self).items()
        }


class Listener(Protocol):
    """Is told of every round of a training as it ends, and of the end."""

    def add(self, record: RoundRecord) -> None:
        """Take in one round."""

    def close(self) -> None:
        """There are no more."""


# Makes one for a training's folder.
Listen = Callable[[Path], Listener]


def read_history(path: Path, last_round: int) -> list[RoundRecord]:
    """Return the rounds up to ``last_round`` of a file with one `RoundRecord.as_json` a line.

    What follows them is not looked at: it may end within a line.

    Raises:
        OSError: The file cannot be read.
        ValueError: Not all of those rounds are there.
    """
    records = []
    with path.open(encoding="utf-8") as file:
        for line, number in zip(file, range(last_round + 1), strict=False):
            values = json.loads(line)
            values["rejected"] = {int(node): why for node, why in values["rejected"].items()}
            records.append(RoundRecord(**values))
            if records[-1].round != number:
                raise ValueError(f"{path.name} has round {records[-1].round} in place {number}")
    if len(records) <= last_round:
        raise ValueError(f"{path.name} ends before round {last_round}")
    return records


def with_totals(record: RoundRecord, before: RoundRecord) -> RoundRecord:
    """Return the record with its ``total`` set to that of the round before plus its own traffic."""
    total = {key: before.total.get(key, 0) + getattr(record, key) for key in TRAFFIC}
    return replace(record, total=total)


def accuracy_curve(records: Sequence[RoundRecord]) -> list[tuple[int, float]]:
    """Return (round, test accuracy) for every round that was tested."""
    return [(record.round, record.accuracy) for record in records if record.accuracy is not None]


def rounds_to_target(curve: Sequence[tuple[int, float]], target: float) -> float | None:
    """Return the number of rounds to a target accuracy as the FedAvg paper counts them.

    The curve is made monotone ("taking the best value of test-set accuracy achieved over all prior
    rounds"), and the crossing is found "using linear interpolation between the discrete points"
    (arXiv 1602.05629v4, section 3).

    Args:
        curve: (round, accuracy) in the order of rounds.
        target: The accuracy to reach.

    Returns:
        The crossing, in rounds; None where the curve never gets there.
    """
    previous: tuple[int, float] | None = None
    for server_round, accuracy in curve:
        if accuracy >= target:
            if previous is None:
                return float(server_round)
            before, best = previous
            return before + (server_round - before) * (target - best) / (accuracy - best)
        best = accuracy if previous is None else max(previous[1], accuracy)
        previous = (server_round, best)
    return None
