"""A strategy that lowers the learning rate by rounds, and keeps track of the best accuracy."""

from collections.abc import Iterable

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg


class CustomFedAvg(FedAvg):
    """FedAvg that halves the learning rate every five rounds."""

    best: tuple[float, int] = (0.0, 0)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Configure the next round of federated training."""
        if server_round % 5 == 0:
            config["lr"] *= 0.5
            print("LR decreased to:", config["lr"])
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Aggregate the clients' metrics, and compare their accuracy with the best so far."""
        metrics = super().aggregate_evaluate(server_round, replies)
        if metrics is not None:
            self.best = max(self.best, (float(metrics["eval_acc"]), server_round))
        return metrics
