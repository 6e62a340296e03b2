"""Yelp reviews to stars: the sentiment task of an earlier small replication of FedAvg.

That replication reports about 40 % for centralised training and 25.5 % for FedAvg after 238 rounds.
"""

import csv
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from tasks.base import Task
from tasks.data.dataset import Schema, Split, Splits, reading
from tasks.data.sources import Sources

WORDS = 10_000  # the vocabulary, with the two special numbers
LENGTH = 256  # words of a review that are kept
PADDING, UNKNOWN = "[PAD]", "[UNK]"  # numbers 0 and 1
HELD_OUT_EVERY = 5


def read(paths: list[Path]) -> Splits:
    """Read the reviews: inputs int16 (n, 256), 0 where a review has ended; targets stars - 1.

    Every fifth review is held out. The vocabulary is that of the others, their most frequent words
    in lower case; clients that shared only the model would need a vocabulary from elsewhere.

    Raises:
        DataError: The file is corrupt or truncated.
    """
    fix = f"give {YELP.files}"
    with reading(paths[0], fix), paths[0].open(encoding="utf-8", newline="") as file:
        reviews = list(csv.DictReader(file, strict=True))
        if any(None in review for review in reviews):
            raise ValueError("a review is not in quotes")
        stars = np.array([int(review["stars"]) for review in reviews], dtype=np.int64) - 1
        texts = [review["text"] for review in reviews]
        held_out = np.arange(len(reviews)) % HELD_OUT_EVERY == HELD_OUT_EVERY - 1
        words = _number(texts, held_out)
    return Split(words[~held_out], stars[~held_out]), Split(words[held_out], stars[held_out])


def _number(texts: list[str], held_out: NDArray[np.bool_]) -> NDArray[np.int16]:
    """Return the numbers of the texts' words, (n, 256)."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.WordLevel(unk_token=UNKNOWN))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    trainer = trainers.WordLevelTrainer(
        vocab_size=WORDS, special_tokens=[PADDING, UNKNOWN], show_progress=False
    )
    known = (text for text, held in zip(texts, held_out, strict=True) if not held)
    tokenizer.train_from_iterator(known, trainer)
    tokenizer.enable_truncation(LENGTH)
    tokenizer.enable_padding(length=LENGTH, pad_token=PADDING)
    return np.array([encoding.ids for encoding in tokenizer.encode_batch(texts)], dtype=np.int16)


YELP = Sources(
    name="yelp",
    label="Yelp reviews",
    files="yelp.csv, with the columns stars and text (it may not be redistributed)",
    patterns=(("yelp.csv",),),
    read=read,
    schema=Schema(np.int16, (LENGTH,), classes=5, symbols=WORDS),
    parser_packages=("tokenizers",),
)


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
