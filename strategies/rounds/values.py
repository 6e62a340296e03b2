"""The values of a round: its settings, what a strategy sees of the round, and its outcome."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, MetricRecord
from numpy.typing import NDArray

from .aggregation import Term
from .client_report import ClientReport, ReplyBounds
from .model import Model
from .reply_errors import ReplyError, ResyncError

# What a strategy reads from a reply: each is averaged over the clients.
Terms = tuple[Term, ...]


@dataclass(frozen=True)
class RunSettings:
    """What the runner must know of a run.

    Attributes:
        num_clients: K; 0 for the number of nodes.
        seed: The run's seed, for random numbers on the server.
        min_replies: The valid replies that a round needs.
        bounds: Bounds on the numbers of a reply.
        buffers: The names of the model's arrays that are sent uncompressed: those that gradients do
            not train, such as batch normalisation's running statistics and counters. The next model
            has the clients' mean of them under every strategy. None for `usual_buffers`.
        other_app: Whether an app other than this project's runs the rounds: then nodes are drawn,
            and messages with the model name the codec.
    """

    num_clients: int = 0
    seed: int = 0
    min_replies: int = 1
    bounds: ReplyBounds = field(default_factory=ReplyBounds)
    buffers: tuple[str, ...] | None = None
    other_app: bool = False


OTHER_APP = RunSettings(bounds=ReplyBounds(max_examples=10**15, exact=False), other_app=True)


@dataclass(frozen=True)
class Round:
    """A round of training, as the strategy sees it.

    Attributes:
        number: From 1.
        model: The global model that clients are sent.
        config: The settings sent to all clients.
        settings: Of the run.
    """

    number: int
    model: Model
    config: Mapping[str, Any]
    settings: RunSettings = field(default_factory=RunSettings)


@dataclass(frozen=True)
class Aggregate:
    """The aggregate of a round's valid replies.

    Attributes:
        nodes: The nodes that sent them.
        means: The weighted mean of each of the terms that the strategy reads, float64.
    """

    nodes: Sequence[int]
    means: Sequence[NDArray[np.float64]]

    @property
    def mean(self) -> NDArray[np.float64]:
        """The mean of a strategy that reads one term."""
        (mean,) = self.means
        return mean


@dataclass(frozen=True)
class RoundOutcome:
    """The outcome of a round or an evaluation.

    Attributes:
        model: The next global model; None if the round leaves it unchanged.
        metrics: The clients' metrics, aggregated; None without a usable reply.
        partial: For metrics that lack usable values of some clients: "3 of 4 clients".
        rejected: The reason, by node id, for every reply that was rejected.
        formula_bits_down: The bits of the training messages by the papers' formulas.
        formula_bits_up: The bits of the valid training replies, likewise.
        privacy: The "epsilon" and "epsilon-replace-one" at a "delta" that the run has spent so far;
            empty if not counted.
        reports: The reports of clients whose replies are used.
    """

    model: ArrayRecord | None = None
    metrics: MetricRecord | None = None
    partial: Mapping[str, str] = field(default_factory=dict)
    rejected: Mapping[int, ReplyError] = field(default_factory=dict)
    formula_bits_down: float = 0.0
    formula_bits_up: float = 0.0
    privacy: Mapping[str, float] = field(default_factory=dict)
    reports: Sequence[ClientReport] = ()

    @property
    def num_resyncing(self) -> int:
        """How many clients lost their state, which does not mean that the run is failing."""
        return sum(isinstance(error, ResyncError) for error in self.rejected.values())
