"""Next-token prediction: examples of token ids, the loss, and perplexity.

The targets of a text are its own ids, as in Hugging Face's libraries: what the model returns at a
place is compared with the target of the place after it. The first target of each text is
`NO_PREDICTION`, since nothing predicts it: a loss and a perplexity are then means over exactly the
targets that are not negative, however the texts are put into batches.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from tasks.data.dataset import NO_PREDICTION, Split
from tasks.metrics import Ratio, State

IDS, MASK = "input_ids", "attention_mask"


def token_split(
    texts: Sequence[Sequence[int] | NDArray[np.integer]],
    length: int,
    owners: NDArray[np.int64] | None = None,
) -> Split:
    """Return texts of token ids as examples of one length.

    Args:
        texts: The ids of each; those beyond the length are left out.
        length: Of all examples; shorter texts are filled up with id 0, which the mask leaves out.
        owners: As for `Split`.

    Returns:
        Inputs "input_ids" int32 (n, length) and "attention_mask" uint8 (n, length), and targets
        int64 (n, length): the ids, `NO_PREDICTION` for the first of each text and where none is.

    Raises:
        ValueError: A text has fewer than two tokens.
    """
    ids = np.zeros((len(texts), length), np.int32)
    mask = np.zeros((len(texts), length), np.uint8)
    for row, text in enumerate(texts):
        if len(text) < 2:
            raise ValueError(f"text {row} has {len(text)} tokens: nothing to predict; leave it out")
        kept = text[:length]
        ids[row, : len(kept)], mask[row, : len(kept)] = kept, 1
    targets = np.where(mask, ids, NO_PREDICTION).astype(np.int64)
    targets[:, 0] = NO_PREDICTION
    return Split({IDS: ids, MASK: mask}, targets, owners)


def prepare(stored: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return a model's keyword arguments: the stored arrays as int64."""
    return {name: tokens.long() for name, tokens in stored.items()}


def _flat(outputs: Any, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return logits, float32 (n length, vocabulary), and the id that each is to predict."""
    if bool((targets[:, 0] >= 0).any()):
        text = "nothing predicts the first token of a text"
        raise ValueError(f"{text}: make its target {NO_PREDICTION}, as token_split does")
    following = functional.pad(targets[:, 1:], (0, 1), value=NO_PREDICTION)
    return outputs.logits.flatten(0, 1).float(), following.flatten()


def next_token_loss(outputs: Any, targets: Tensor) -> Tensor:
    """Return the mean cross-entropy over the tokens that are predicted, float32 ().

    Args:
        outputs: Of a causal language model of transformers: its logits are (n, length, vocabulary).
        targets: As of `token_split`, int64 (n, length).

    Raises:
        ValueError: A first target is not negative.
    """
    return functional.cross_entropy(*_flat(outputs, targets), ignore_index=NO_PREDICTION)


class Perplexity(Ratio):
    """The exponential of the mean cross-entropy over all predicted tokens; for `next_token_loss`.

    A state is the sum of the losses and the number of predictions, so that the value of several
    batches or clients is that of all their tokens at once.
    """

    def __init__(self) -> None:
        super().__init__("perplexity", _losses)
        self.higher_is_better = False

    def value(self, states: Sequence[State]) -> float:
        """Return the perplexity; NaN where nothing was predicted."""
        with np.errstate(over="ignore"):
            return float(np.exp(super().value(states)))


def _losses(outputs: Any, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return the sum of the losses and the number of predictions."""
    losses = functional.cross_entropy(
        *_flat(outputs, targets), ignore_index=NO_PREDICTION, reduction="none"
    )
    return losses.cpu().to(torch.float64).sum(), (targets >= 0).sum()
