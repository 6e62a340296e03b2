"""What rounds have spent of a budget."""

from collections.abc import Sequence

from fedavg_app.budget import BYTES, SECONDS, Budget
from fedavg_app.results.history import RoundMetrics, virtual_times

COUNTED = {"up": ("bytes_up",), "down": ("bytes_down",), "both": ("bytes_up", "bytes_down")}


def spent(budget: Budget, history: Sequence[RoundMetrics], num_clients: int) -> float:
    """Return what these rounds have spent, in the budget's unit.

    Args:
        budget: Its kind says what is counted: of bytes those of training messages.
        history: The rounds, with their totals.
        num_clients: K.
    """
    if not history:
        return 0.0
    if not budget.direction:
        return virtual_times(history)[-1] / SECONDS[budget.unit]
    total = sum(history[-1].total[name] for name in COUNTED[budget.direction])
    return total / BYTES[budget.unit] / (num_clients if budget.each else 1)
