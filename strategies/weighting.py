"""How much each client counts in a mean: by its examples, or all alike."""

from collections.abc import Sequence

from flwr.app import Message

from strategies.screening import num_examples

WEIGHTS = ("samples", "uniform")


def check_weights(weights: str) -> str:
    """Return ``weights`` if it is "samples" or "uniform".

    Raises:
        ValueError: It is neither.
    """
    if weights not in WEIGHTS:
        raise ValueError(f"weights = {weights!r}: give {' or '.join(map(repr, WEIGHTS))}")
    return weights


def reply_weights(replies: Sequence[Message], weights: str) -> list[float]:
    """Return one weight per reply: its n_k for "samples" (McMahan et al.), 1 for "uniform" (STC).

    Args:
        replies: Replies that passed the checks.
        weights: What `check_weights` let pass.
    """
    return [1.0 if weights == "uniform" else num_examples(reply) for reply in replies]
