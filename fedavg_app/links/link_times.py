"""How long the messages of a finished run would have taken over a link."""

from collections.abc import Sequence

from fedavg_app.links.link import Link
from fedavg_app.results.history import RoundMetrics


def link_times(history: Sequence[RoundMetrics], link: Link) -> list[float]:
    """Return the seconds that all messages took by the end of every round, over the same link.

    The largest message of a round counts, and the largest reply: a round waits for the last one.
    Histories of earlier versions have the mean only.
    """
    times, total = [], 0.0
    for metrics in history:
        if metrics.participants:
            up = metrics.largest_up or metrics.bytes_up / metrics.participants
            down = metrics.largest_down or metrics.bytes_down / metrics.participants
            total += link.seconds(up, down)
        times.append(total)
    return times
