"""Yelp reviews to stars: the sentiment task of an earlier small replication of FedAvg.

That replication reports about 40 % for centralised training and 25.5 % for FedAvg after 238 rounds.
"""

from torch import Tensor, nn

from tasks.base import Task
from tasks.data.yelp import WORDS, YELP


class BagOfWords(nn.Module):
    """The mean of a review's word vectors (of 64), and a linear layer: 640,325 parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.EmbeddingBag(WORDS, 64, mode="mean", padding_idx=0)
        self.output = nn.Linear(64, 5)

    def forward(self, words: Tensor) -> Tensor:
        """Return logits (n, 5) for word numbers (n, 256)."""
        logits: Tensor = self.output(self.words(words))
        return logits


YELP_STARS = Task(
    "yelp-stars",
    BagOfWords,
    YELP.load,
    Tensor.long,
    learning_rate=1.0,
    in_parts=True,
    shared_model=True,
)
