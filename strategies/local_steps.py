"""How many steps of SGD a client's local work has."""

from collections.abc import Mapping
from typing import Any

from strategies.base import StrategyError


def local_steps(config: Mapping[str, Any], num_examples: float) -> int:
    """Return the steps of a client that has so many examples.

    Args:
        config: The message's "local-steps", or "local-epochs" and "batch-size" (0 for one batch).
        num_examples: n_k.
    """
    if config.get("local-steps"):
        return int(config["local-steps"])
    size = int(config.get("batch-size", 0)) or num_examples
    return int(config.get("local-epochs", 1)) * max(int(-(-num_examples // size)), 1)


def check_plain_sgd(config: Mapping[str, Any], method: str) -> None:
    """Check that the clients' steps are those that a method is defined for.

    Raises:
        StrategyError: They have momentum.
    """
    if config.get("momentum"):
        raise StrategyError(f"{method} is defined for SGD without momentum; leave out momentum")
