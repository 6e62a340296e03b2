"""Any other `flwr.serverapp.strategy.Strategy`, Flower's own included, behind our screening.

Flower's strategies raise when one reply's records differ from the others' and average NaN. Behind
`Screened` they see only replies that passed the same checks as those of our own strategies.
"""

from collections.abc import Iterable

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import (
    DifferentialPrivacyClientSideAdaptiveClipping,
    DifferentialPrivacyServerSideAdaptiveClipping,
    DifferentialPrivacyServerSideFixedClipping,
    Strategy,
)

from strategies.aggregation import cast_like, l2_norm
from strategies.arrays import from_record
from strategies.base import log_rejected, model_bits
from strategies.limits import Limits
from strategies.screening import (
    ARRAYS,
    METRICS,
    NUM_EXAMPLES,
    ReplyError,
    accuracy_spread,
    check_metrics,
    check_update,
    common_metrics,
    screen,
)

# Flower's wrappers that clip on the server divide by the norm of an update, in float32, where the
# squares of smaller ones vanish.
CLIPPING = (
    DifferentialPrivacyServerSideFixedClipping,
    DifferentialPrivacyServerSideAdaptiveClipping,
)
SMALLEST_CLIPPED = 1e-18
# The wrapper that adapts the norm to what the mod on the clients says of its clipping.
ADAPTING = DifferentialPrivacyClientSideAdaptiveClipping
NORM_BIT = "norm_bit"


class Screened(Strategy):
    """Drives ``inner`` with replies that hold the model's arrays, finite, and the same metrics.

    Attributes:
        limits: What replies must keep to besides; set before the first round.
        rejected: Reasons by node id for the replies refused in the last `aggregate_*` call.
        recovering: 0; see `CohortStrategy`.
        theory_bits_down: 32 bits an entry of the model for every training message of the round.
        theory_bits_up: The same for every accepted reply.
    """

    def __init__(self, inner: Strategy) -> None:
        self.inner = inner
        self.limits = Limits()
        self.rejected: dict[int, str] = {}
        self.theory_bits_down = self.theory_bits_up = 0.0
        self.recovering = 0
        self._arrays = ArrayRecord()

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return what the inner strategy sends."""
        self._arrays = arrays
        messages = list(self.inner.configure_train(server_round, arrays, config, grid))
        self.theory_bits_down = len(messages) * model_bits(arrays)
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Let the inner strategy aggregate the replies that pass; (None, None) if too few do."""
        accepted, self.rejected = screen(replies, self._check_update, self.limits.min_replies)
        log_rejected(server_round, self.rejected)
        self.theory_bits_up = len(accepted) * model_bits(self._arrays)
        if not accepted:
            return None, None
        arrays, metrics = self.inner.aggregate_train(server_round, _alike(accepted))
        return None if arrays is None else self._as_sent(arrays), metrics

    def _check_update(self, reply: Message) -> None:
        arrays = check_update(reply, self._arrays, self.limits, self._arrays)
        metrics = common_metrics(reply)
        # Flower's strategies may be told to weight by another metric than the number of examples.
        innermost = getattr(self.inner, "strategy", self.inner)
        weighting = getattr(innermost, "weighted_by_key", NUM_EXAMPLES)
        if metrics.get(weighting, 0) <= 0:
            raise ReplyError(f"metric {weighting!r}, which replies are weighted by, is not above 0")
        # What would make the wrapper raise, which ends the run.
        if isinstance(self.inner, ADAPTING) and NORM_BIT not in metrics:
            raise ReplyError(f"no metric {NORM_BIT!r}; client-mods needs adaptiveclipping_mod")
        if isinstance(self.inner, CLIPPING):
            norm = l2_norm(arrays, from_record(self._arrays))
            if norm < SMALLEST_CLIPPED:
                raise ReplyError("the update is zero, which cannot be clipped")

    def _as_sent(self, arrays: ArrayRecord) -> ArrayRecord:
        """Return the arrays in the model's dtypes: FedAdam and its like hand back float64."""
        return ArrayRecord(
            {
                name: Array(cast_like(arrays[name].numpy(), np.dtype(like.dtype)))
                for name, like in self._arrays.items()
            }
        )

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return what the inner strategy sends."""
        return self.inner.configure_evaluate(server_round, arrays, config, grid)

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Let the inner strategy aggregate the replies that pass; None where none does.

        How the clients' accuracies differ is added to what it returns.
        """
        accepted, self.rejected = screen(replies, lambda reply: check_metrics(reply, self.limits))
        log_rejected(server_round, self.rejected)
        if not accepted:
            return None
        metrics = self.inner.aggregate_evaluate(server_round, _alike(accepted))
        return MetricRecord({**(metrics or {}), **accuracy_spread(accepted)})

    def summary(self) -> None:
        """Let the inner strategy log its settings."""
        self.inner.summary()


def _alike(replies: list[Message]) -> list[Message]:
    """Reduce the replies to the records and the metrics that all of them share.

    One client with a metric of its own would otherwise make Flower's strategies drop the round.
    """
    metrics = [common_metrics(reply) for reply in replies]
    shared = [key for key in metrics[0] if all(key in record for record in metrics)]
    for reply, record in zip(replies, metrics, strict=True):
        content = RecordDict({METRICS: MetricRecord({key: record[key] for key in shared})})
        if ARRAYS in reply.content.array_records:
            content[ARRAYS] = reply.content.array_records[ARRAYS]
        reply.content = content
    return replies
