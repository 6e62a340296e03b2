"""The strategy of FlowerTune: it sets the learning rate of a round, and counts bytes."""

import math
from collections.abc import Iterable

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg


def cosine_annealing(
    current_round: int, total_round: int, lrate_max: float, lrate_min: float
) -> float:
    """Return the learning rate of a round, by a cosine schedule."""
    cos_inner = math.pi * current_round / total_round
    return lrate_min + 0.5 * (lrate_max - lrate_min) * (1 + math.cos(cos_inner))


class CommunicationTracker:
    """Counts what is sent."""

    def __init__(self) -> None:
        self.curr_comm_cost = 0.0

    def track(self, messages: list[Message]) -> None:
        """Add the megabytes of some messages."""
        size = sum(
            record.count_bytes()
            for message in messages
            if message.has_content()
            for record in message.content.array_records.values()
        )
        self.curr_comm_cost += size / 2**20


class FlowerTuneLlm(FedAvg):
    """FedAvg with a cosine schedule and a tracker of communication costs."""

    comm_tracker = CommunicationTracker()
    rates: tuple[int, float, float] = (1, 0.0, 0.0)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Configure the next round of training."""
        config["lr"] = cosine_annealing(server_round, *self.rates)
        messages = list(super().configure_train(server_round, arrays, config, grid))
        self.comm_tracker.track(messages)
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Aggregate the adapters."""
        replies = list(replies)
        self.comm_tracker.track(replies)
        return super().aggregate_train(server_round, replies)
