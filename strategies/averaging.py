"""What FedAvg and FedSGD share: the weighted mean of what clients send, summed as replies come."""

from collections.abc import Iterable

from flwr.app import ArrayRecord, Message, MetricRecord

from strategies.aggregation import Arrays, RunningMean
from strategies.base import CohortStrategy
from strategies.screening import ARRAYS, check_update
from strategies.weighting import check_weights, reply_weights


class AveragingStrategy(CohortStrategy):
    """Takes sum_k (n_k / n) x_k of the clients' arrays x_k; subclasses say what becomes of it.

    A reply's arrays are added as soon as it is there, and dropped: a round needs the memory of one
    sum, however many take part.

    Args:
        weights: "samples" weights by n_k, "uniform" counts all clients alike.

    Raises:
        ValueError: ``weights`` is neither.
    """

    def __init__(self, weights: str = "samples") -> None:
        super().__init__()
        self._weights = check_weights(weights)
        self._sum = RunningMean()

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Aggregate the replies that pass, one by one; (None, None) where none does."""
        self._sum = RunningMean()
        return super().aggregate_train(server_round, replies)

    def check_reply(self, reply: Message) -> None:
        """Check one reply, add its arrays to the mean and take them out of it.

        Raises:
            ReplyError: The reply must not be used.
        """
        arrays = check_update(reply, self.sent_arrays, self.limits, self.origin)
        self._sum.add(arrays, *reply_weights([reply], self._weights))
        del reply.content[ARRAYS]

    def mean(self) -> Arrays:
        """Return the weighted mean of the round's replies."""
        return self._sum.result()
