import math

import torch
from peft import LoraConfig, get_peft_model
from transformers import GPT2Config, GPT2LMHeadModel

from flowertuneexample.dataset import LENGTH, LETTERS

BASE_SEED = 0  # in place of the weights of a pretrained model


def cosine_annealing(
    current_round: int, total_round: int, lrate_max: float, lrate_min: float
) -> float:
    """Return the learning rate of a round, by a cosine schedule."""
    cos_inner = math.pi * current_round / total_round
    return lrate_min + 0.5 * (lrate_max - lrate_min) * (1 + math.cos(cos_inner))


def get_model(lora_r: int, lora_alpha: int) -> torch.nn.Module:
    """Return a small GPT-2 whose weights are frozen, with LoRA adapters."""
    torch.manual_seed(BASE_SEED)
    config = GPT2Config(
        vocab_size=LETTERS, n_positions=LENGTH, n_embd=64, n_layer=2, n_head=2,
        bos_token_id=0, eos_token_id=0, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    )  # fmt: skip
    adapters = LoraConfig(
        r=lora_r, lora_alpha=lora_alpha, target_modules=["c_attn", "c_proj", "c_fc"],
        fan_in_fan_out=True, task_type="CAUSAL_LM",
    )  # fmt: skip
    return get_peft_model(GPT2LMHeadModel(config), adapters)
