"""Yelp reviews with their stars, as sequences of word numbers."""

import csv
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tasks.data.dataset import DataError, Split
from tasks.data.npz_archive import Schema
from tasks.data.sources import Sources, Splits

FILE = "yelp.csv"
WORDS = 10_000  # the vocabulary, with the two special ones
LENGTH = 256  # words of a review that are kept
PADDING, UNKNOWN = "[PAD]", "[UNK]"  # numbers 0 and 1
HELD_OUT_EVERY = 5


def find(folder: Path) -> list[Path]:
    """Return the file.

    Raises:
        DataError: It is missing.
    """
    path = folder / FILE
    if not path.is_file():
        raise DataError(f"data-dir = {str(folder)!r} has no {FILE}; give {YELP.files}")
    return [path]


def read(paths: list[Path]) -> Splits:
    """Read the reviews: inputs int16 (n, 256), 0 where a review has ended; targets stars - 1.

    Every fifth review is held out. The vocabulary is that of the others, their most frequent words
    in lower case; clients that shared nothing but the model would need one from elsewhere.

    Raises:
        DataError: The file is corrupt or truncated.
    """
    try:
        with paths[0].open(encoding="utf-8", newline="") as file:
            rows = csv.DictReader(file, strict=True)
            if not {"stars", "text"} <= set(rows.fieldnames or ()):
                raise DataError(f"{paths[0]} lacks the columns stars and text; give {YELP.files}")
            reviews = list(_reviews(rows))
    except DataError:
        raise
    except (TypeError, ValueError, csv.Error) as error:
        raise DataError(f"{paths[0]} is corrupt or truncated ({error}); fetch it again") from error
    if len(reviews) < HELD_OUT_EVERY:
        raise DataError(f"{paths[0]} has only {len(reviews)} reviews; fetch it again")
    held_out = np.arange(len(reviews)) % HELD_OUT_EVERY == HELD_OUT_EVERY - 1
    stars = np.array([stars for stars, _ in reviews], dtype=np.int64) - 1
    words = _number([text for _, text in reviews], held_out)
    return Split(words[~held_out], stars[~held_out]), Split(words[held_out], stars[held_out])


def _reviews(rows: "csv.DictReader[str]") -> Iterator[tuple[int, str]]:
    for row in rows:
        stars = int(row["stars"])
        if not 1 <= stars <= 5:
            raise ValueError(f"line {rows.line_num} has {stars} stars")
        if None in row.values() or None in row:
            raise ValueError(f"line {rows.line_num} has not as many cells as there are columns")
        yield stars, row["text"]


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
    content="10,000 with 1 to 5 stars",
    files=f"{FILE}, with the columns stars and text (it may not be redistributed)",
    schema=Schema(np.int16, (LENGTH,), classes=5, symbols=WORDS),
    parser_packages=("tokenizers",),
    find=find,
    read=read,
)
