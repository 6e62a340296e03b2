"""Adapters of pretrained language models (LoRA, arXiv 2106.09685) as a task: only they travel.

The weights of the base are not trained, so they are fixed arrays (`tasks.model_arrays`): server and
clients have them from the task, and a client whose base has other values is refused. The libraries
are the extra ``lora``: ``pip install 'fedavg-app[lora]'``.

An adapter adds B A to a weight. Strategies average A and B, and the mean of the A times the mean of
the B is not the mean of the products: results/lora.md has what that costs. With A fixed at its
initial values (FFA-LoRA, arXiv 2403.12313), ``freeze_a``, the mean of the B is exact, and about
half of the bytes travel.
"""

import copy
import json
import os
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

import tasks
from tasks.base import Task
from tasks.checking import TaskError
from tasks.data.dataset import DataOptions, Dataset
from tasks.language import Perplexity, next_token_loss, prepare

if TYPE_CHECKING:  # they take seconds to import, and need not be installed
    from peft import PeftConfig

Base = str | os.PathLike[str] | Callable[[], nn.Module]


def lora_task(
    name: str,
    *,
    base: Base,
    lora: "PeftConfig | Mapping[str, Any]",
    dataset: Callable[[DataOptions], Dataset],
    learning_rate: float,
    freeze_a: bool = False,
    **attributes: Any,
) -> Task:
    """Return the task of training adapters of a causal language model by AdamW.

    Args:
        name: As for `Task`.
        base: The pretrained model: a folder or a name on the hub, for ``from_pretrained``; or a
            function that returns a new model of transformers, whose draws the run's seed fixes.
        lora: What PEFT adds to it: a config, or the arguments of a `LoraConfig` by name. Its
            initialisation must not change the base, so not PiSSA's or OLoRA's.
        dataset: Returns the data, whose splits are as of `tasks.language.token_split`.
        learning_rate: Of AdamW.
        freeze_a: Whether A keeps its initial values, which the run's seed draws: FFA-LoRA.
        attributes: Other attributes of the `Task`, such as ``partitions`` or ``target``.
    """
    given: dict[str, Any] = {
        "loss": next_token_loss,
        "metrics": {"perplexity": Perplexity()},
        "optimizer": "adamw",
        "in_parts": True,  # a text's logits and loss depend on no other text
        "shared_model": True,  # PEFT and transformers keep nothing; a new base takes seconds
        "partitions": ("iid",),
    }

    def model() -> nn.Module:
        return adapted(base, lora, freeze_a=freeze_a)

    return Task(name, model, dataset, prepare, learning_rate, **given | attributes)


def adapted(
    base: Base, lora: "PeftConfig | Mapping[str, Any]", *, freeze_a: bool = False
) -> nn.Module:
    """Return the base with new adapters, a `peft.PeftModel`; the arguments are `lora_task`'s.

    Raises:
        TaskError: A library is missing.
        ValueError: With ``freeze_a``, there is no A.
    """
    try:
        from peft import LoraConfig, get_peft_model
        from transformers import AutoModelForCausalLM
    except ModuleNotFoundError as error:
        fix = "install it with: pip install 'fedavg-app[lora]'"
        raise TaskError("model", f"needs {error.name}, which is missing; {fix}") from error

    plain: Any = base() if callable(base) else AutoModelForCausalLM.from_pretrained(base)
    plain.config.use_cache = False  # for text that is generated token by token
    config = LoraConfig(**lora) if isinstance(lora, Mapping) else copy.deepcopy(lora)
    with warnings.catch_warnings():  # PEFT asks for an attribute that transformers has renamed
        warnings.filterwarnings("ignore", ".*is_gradient_checkpointing", FutureWarning)
        model: nn.Module = get_peft_model(plain, config)
    if freeze_a:
        frozen = [
            parameter for name, parameter in model.named_parameters() if "lora_A" in name.split(".")
        ]
        if not frozen:
            raise ValueError("freeze_a is of LoRA: the adapters of this config have no A")
        for weight in frozen:
            weight.requires_grad_(False)
    return model


def save_adapter(
    run_folder: str | os.PathLike[str],
    out: str | os.PathLike[str],
    file: str = "model.safetensors",
) -> None:
    """Write the adapters of a run for ``peft.PeftModel.from_pretrained(base, out)``.

    Args:
        run_folder: The folder of a run whose task is of `lora_task`, and can be imported.
        out: The folder to write, with PEFT's ``adapter_config.json`` and the adapters.
        file: Which model of the run; "best.safetensors" is that of the best round.

    Raises:
        OSError: A file of the folder cannot be read.
        ValueError: The run's task is no `lora_task`, or its model has other arrays.
    """
    from safetensors.torch import load_file

    folder = Path(run_folder)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    model: Any = tasks.load(config["task"]).initial_model(config["seed"])
    if not hasattr(model, "peft_config"):
        raise ValueError(f"the task {config['task']!r} has no adapters of PEFT")
    try:
        model.load_state_dict(load_file(folder / file))
    except RuntimeError as error:
        raise ValueError(f"{folder / file} is not of the task's model: {error}") from error
    model.save_pretrained(str(out))
