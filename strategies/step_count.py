"""The number of SGD steps in a client's local work."""

from collections.abc import Mapping
from typing import Any


def step_count(config: Mapping[str, Any], num_examples: float) -> int:
    """Return the steps of a client with this many examples.

    Args:
        config: The message's "local-steps", or "local-epochs" and "batch-size" (0 for one batch).
        num_examples: n_k.
    """
    if config.get("local-steps"):
        return int(config["local-steps"])
    size = int(config.get("batch-size", 0)) or num_examples or 1
    return int(config.get("local-epochs", 1)) * max(int(-(-num_examples // size)), 1)
