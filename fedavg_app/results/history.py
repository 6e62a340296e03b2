"""The metrics of each round, and how a training ended."""

import json
import math
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import accumulate
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np
from flwr.app import ArrayRecord

from fedavg_app.errors import RunError
from tasks.objective import ACCURACY, LOSS, Objective

if TYPE_CHECKING:  # torch takes two seconds to import
    from tasks.training.evaluation import Scores

TRAFFIC = ("bytes_down", "bytes_up", "theory_bits_down", "theory_bits_up")


@dataclass(frozen=True)
class RoundMetrics:
    """A line of the history; round 0 is the initial model.

    Attributes:
        round: The round's number.
        participants: How many clients were sent a training message.
        rejected: The reason, by node id, for every training or evaluation reply that was rejected
            or came too late.
        lost_states: The clients whose states, such as momentum, were lost since the round before.
        learning_rate: eta in this round.
        train_loss: Mean of the clients' training losses, weighted by n_k.
        train_metrics: The other metrics of the clients' training, with the same weights.
        test_loss: Mean loss of the new global model on the test set; None if not tested.
        accuracy: Its accuracy there, in [0, 1]; None if not tested, or if the task has none.
        test_metrics: The task's other metrics there.
        validation_metrics: Its loss and all metrics on validation examples; empty if not tested, or
            without such examples.
        client_metrics: The clients' own evaluations: the metrics over the examples of all clients,
            the n_k-weighted mean of the loss, and for each metric also the clients' plain mean
            ("accuracy-mean") and the value that a tenth of them are worse than: the 10th percentile
            ("accuracy-p10"), or the 90th if less is better ("mae-p90").
        client_values: For the loss and each metric of these evaluations, each client's value by its
            number.
        partial: For means that leave out clients, "3 of 4 clients", by their names here:
            "train_loss", "train_metrics.grad-norm", "client_metrics.accuracy".
        bytes_down: Bytes of the records sent to clients for training.
        bytes_up: Bytes of the records they sent back.
        largest_down: Bytes of the largest of these messages; of several exchanges, their sum.
        largest_up: Bytes of the largest of the replies, likewise.
        exchanges: How often messages were sent and answered, one after the other.
        theory_bits_down: Bits of the messages by the papers' formulas: no heads, names or metrics.
        theory_bits_up: Bits of the valid replies by the same formulas.
        total: The same four, summed over all rounds so far.
        seconds: Wall-clock time of the round.
        virtual_seconds: With links, the time that the round would take over them ("round"), and the
            last client's "download", "computing" and "upload".
        privacy: The "epsilon" (zero-out) and "epsilon-replace-one" at a "delta" spent so far, if
            they are counted.
    """

    round: int
    participants: int = 0
    rejected: dict[int, str] = field(default_factory=dict)
    lost_states: list[int] = field(default_factory=list)
    learning_rate: float | None = None
    train_loss: float | None = None
    train_metrics: dict[str, float] = field(default_factory=dict)
    test_loss: float | None = None
    accuracy: float | None = None
    test_metrics: dict[str, float] = field(default_factory=dict)
    validation_metrics: dict[str, float] = field(default_factory=dict)
    client_metrics: dict[str, float] = field(default_factory=dict)
    client_values: dict[str, dict[int, float]] = field(default_factory=dict)
    partial: dict[str, str] = field(default_factory=dict)
    bytes_down: int = 0
    bytes_up: int = 0
    largest_down: int = 0
    largest_up: int = 0
    exchanges: int = 1
    theory_bits_down: float = 0.0
    theory_bits_up: float = 0.0
    total: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    virtual_seconds: dict[str, float] = field(default_factory=dict)
    privacy: dict[str, float] = field(default_factory=dict)

    @property
    def tested(self) -> dict[str, float]:
        """The loss and all metrics on the test set, by name; empty if not tested."""
        found = {ACCURACY: self.accuracy, **self.test_metrics, LOSS: self.test_loss}
        return {name: value for name, value in found.items() if value is not None}

    def score(self, objective: Objective, *, on_clients: bool) -> float | None:
        """Return the value by which a run is judged; None if not tested.

        It is that on validation examples where there are any, and else the `result`.
        """
        if self.validation_metrics:
            return self.validation_metrics.get(objective.name)
        return self.result(objective, on_clients=on_clients)

    def result(self, objective: Objective, *, on_clients: bool) -> float | None:
        """Return the value on the test set; None if not tested.

        Args:
            objective: The objective.
            on_clients: Whether clients keep their own arrays, without which the global model says
                little: then it is the value over all clients' own tests.
        """
        return (self.client_metrics if on_clients else self.tested).get(objective.name)

    def as_json(self) -> dict[str, Any]:
        """Return plain values for a line of JSON; null for values that are not finite."""
        plain: dict[str, Any] = finite_json(asdict(self))
        return plain

    def with_totals(self, before: "RoundMetrics | None") -> "RoundMetrics":
        """Return the metrics with ``total`` set: the previous round's plus their own."""
        earlier = before.total if before else {}
        total = {key: earlier.get(key, 0) + getattr(self, key) for key in TRAFFIC}
        return replace(self, total=total)


def test_scores(scores: "Scores", validation: "Scores | None") -> dict[str, Any]:
    """Return the results of tests of the global model as fields of `RoundMetrics`."""
    others = {name: value for name, value in scores.metrics.items() if name != ACCURACY}
    return {
        "test_loss": scores.loss,
        "accuracy": scores.metrics.get(ACCURACY),
        "test_metrics": others,
        "validation_metrics": {**validation.metrics, LOSS: validation.loss} if validation else {},
    }


def finite_json(value: Any) -> Any:
    """Return the value with None for numbers that JSON cannot represent, also within mappings."""
    if isinstance(value, dict):
        return {key: finite_json(entry) for key, entry in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


@dataclass(frozen=True)
class TrainingResult:
    """How a training ended.

    Attributes:
        history: The metrics of every round.
        model: The global model after the last of these rounds; None if there was none.
        rounds_to_target: As `Objective.rounds_to_target` counts them; None if it was not reached.
        error: Why the training failed; None if it did not.
        best_model: The global model of the round with the best objective.
        folder: The folder of the results.
    """

    history: list[RoundMetrics]
    model: ArrayRecord | None = None
    rounds_to_target: float | None = None
    error: BaseException | None = None
    best_model: ArrayRecord | None = None
    folder: Path | None = None

    @property
    def status(self) -> str:
        """How it ended: "finished", "interrupted", or the error's status (`RunError.status`)."""
        if self.error is None:
            return "finished"
        if isinstance(self.error, RunError):
            return self.error.status
        return "failed" if isinstance(self.error, Exception) else "interrupted"


def objective_curve(
    history: Sequence[RoundMetrics], objective: Objective, *, on_clients: bool = False
) -> list[tuple[int, float]]:
    """Return (round, `RoundMetrics.score`) for every round that was tested."""
    scores = (
        (metrics.round, metrics.score(objective, on_clients=on_clients)) for metrics in history
    )
    return [(number, score) for number, score in scores if score is not None]


@dataclass(frozen=True)
class Best:
    """What a run has come to.

    Attributes:
        metrics: The first round with the best `RoundMetrics.score`.
        value: Its `RoundMetrics.result`.
        final: The result of the last round that was tested.
        chosen_on: What the scores are of: "test", "validation", or "clients" for their own tests.
    """

    metrics: RoundMetrics
    value: float
    final: float
    chosen_on: str


def best_of(
    history: Sequence[RoundMetrics], objective: Objective, *, on_clients: bool = False
) -> Best | None:
    """Return what a run has come to in these rounds; None if no round has a score."""
    best = objective.best_point(objective_curve(history, objective, on_clients=on_clients))
    results = [(record, record.result(objective, on_clients=on_clients)) for record in history]
    found = {record.round: (record, value) for record, value in results if value is not None}
    if best is None or best[0] not in found:
        return None
    chosen, value = found[best[0]]
    kind = "validation" if chosen.validation_metrics else "clients" if on_clients else "test"
    return Best(chosen, value, [*found.values()][-1][1], kind)


def statistic(values: Collection[float], name: str, *, higher_is_better: bool) -> float:
    """Return "mean", "worst" or a percentile, such as "p10", of clients' values."""
    if name == "mean":
        return fmean(values)
    if name == "worst":
        return min(values) if higher_is_better else max(values)
    return float(np.percentile([*values], int(name[1:])))


def virtual_times(history: Sequence[RoundMetrics]) -> list[float]:
    """Return the virtual seconds that have passed by the end of every round; 0 without links."""
    return list(accumulate(metrics.virtual_seconds.get("round", 0.0) for metrics in history))


def read_history(
    path: Path, last_round: int | None = None, *, cut_off: bool = False
) -> list[RoundMetrics]:
    """Return the rounds of a ``history.jsonl``, one `RoundMetrics.as_json` a line.

    Args:
        path: The file.
        last_round: The last round to read; the file may end within a later line. None reads all.
        cut_off: Whether the file may end within a line, which is then ignored.

    Raises:
        OSError: The file cannot be read.
        ValueError: Rounds are missing.
    """
    history: list[RoundMetrics] = []
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file):
            if last_round is not None and number > last_round:
                break
            if cut_off and not line.endswith("\n"):
                break
            values = json.loads(line)
            values["rejected"] = {int(node): why for node, why in values["rejected"].items()}
            values["client_values"] = {
                name: {int(client): value for client, value in by_client.items()}
                for name, by_client in values.get("client_values", {}).items()
            }
            history.append(RoundMetrics(**values))
    if last_round is not None and len(history) <= last_round:
        raise ValueError(f"{path.name} ends before round {last_round}")
    return history
