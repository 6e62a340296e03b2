"""What a client reports beside its arrays: n_k and metrics; `reply_validation` checks them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class ReplyBounds:
    """Upper bounds on the numbers of a reply.

    Attributes:
        max_examples: The most examples that a client may report, and so its largest weight in a
            mean.
        max_update_norm: The largest L2 norm of a client's update, over all arrays together.
        exact: Whether n_k counts examples, at least 1, metrics are within
            `reply_validation.is_usable`, and arrays have the model's dtypes; else n_k is any weight
            from 0, metrics are any finite numbers, and trained arrays have any dtype of
            floating-point numbers, as other apps' replies may.
    """

    max_examples: int = 10**9
    max_update_norm: float = math.inf
    exact: bool = True


@dataclass(frozen=True)
class ClientReport:
    """What a valid reply reports of its client's work.

    Attributes:
        node_id: The node that sent it.
        num_examples: n_k, the number of local examples.
        metrics: Its other usable scalar metrics by name, for example "train-loss".
        unusable: The names of the scalar metrics that `reply_validation.is_usable` refuses.
        lists: The metrics that are lists, if the bounds are not exact.
    """

    node_id: int
    num_examples: float
    metrics: Mapping[str, float] = field(default_factory=dict)
    unusable: tuple[str, ...] = ()
    lists: Mapping[str, Sequence[float]] = field(default_factory=dict)
