"""The numbers of a round that trackers show."""

from fedavg_app.results.metrics import RoundMetrics


def scalars(metrics: RoundMetrics) -> dict[str, float]:
    """Return the round's numbers by name, without those that it does not have."""
    found = {
        "accuracy": metrics.accuracy,
        "loss/test": metrics.test_loss,
        "loss/training": metrics.train_loss,
        "bytes/up": metrics.bytes_up,
        "bytes/down": metrics.bytes_down,
        "rejected": len(metrics.rejected),
    }
    return {name: value for name, value in found.items() if value is not None}
