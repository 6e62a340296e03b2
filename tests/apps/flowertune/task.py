"""LoRA adapters of a small GPT-2, on made-up text: nearly each letter follows from the last."""

import torch
from flwr.app import ArrayRecord, RecordDict
from peft import (
    LoraConfig,
    get_peft_model,
    get_peft_model_state_dict,
    set_peft_model_state_dict,
)
from transformers import GPT2Config, GPT2LMHeadModel

torch.set_num_threads(1)
LETTERS, LENGTH, NOISE = 32, 24, 0.02
EPOCHS, BATCH_SIZE = 10, 16  # steps, not epochs
BASE_SEED = 0  # in place of the weights of a pretrained model


def texts(number: int, seed: int) -> torch.Tensor:
    """Return texts as letters, (number, LENGTH); the next one is 5 times it and 3, modulo 32."""
    generator = torch.Generator().manual_seed(seed)
    found = torch.empty(number, LENGTH, dtype=torch.long)
    found[:, 0] = torch.randint(LETTERS, (number,), generator=generator)
    for place in range(1, LENGTH):
        follows = (5 * found[:, place - 1] + 3) % LETTERS
        other = torch.randint(LETTERS, (number,), generator=generator)
        is_other = torch.rand(number, generator=generator) < NOISE
        found[:, place] = torch.where(is_other, other, follows)
    return found


def new_model() -> torch.nn.Module:
    """Return a small GPT-2 whose weights are frozen, with LoRA adapters."""
    torch.manual_seed(BASE_SEED)
    config = GPT2Config(
        vocab_size=LETTERS, n_positions=LENGTH, n_embd=64, n_layer=2, n_head=2,
        bos_token_id=0, eos_token_id=0, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    )  # fmt: skip
    adapters = LoraConfig(
        r=8, lora_alpha=16, target_modules=["c_attn", "c_proj", "c_fc"], fan_in_fan_out=True,
        task_type="CAUSAL_LM",
    )  # fmt: skip
    return get_peft_model(GPT2LMHeadModel(config), adapters)


def initial_arrays(seed: int) -> ArrayRecord:
    return ArrayRecord(get_peft_model_state_dict(new_model()))


def load_model(arrays: ArrayRecord, state: RecordDict) -> torch.nn.Module:
    model = new_model()
    set_peft_model_state_dict(model, arrays.to_torch_state_dict())
    return model


def save_model(model: torch.nn.Module, state: RecordDict) -> ArrayRecord:
    return ArrayRecord(get_peft_model_state_dict(model))


def load_data(partition_id: int, num_partitions: int, seed: int) -> tuple:
    """Return a client's texts, with the seed of their batches, and nothing to test with."""
    return (texts(400, seed=1 + partition_id), seed), None


def size(trainset: tuple) -> int:
    return len(trainset[0])


def train(model: torch.nn.Module, trainset: tuple, steps: int, lr: float) -> float:
    examples, seed = trainset
    generator = torch.Generator().manual_seed(seed)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=lr)
    model.train()
    total = 0.0
    for _ in range(steps):
        rows = torch.randperm(len(examples), generator=generator)[:BATCH_SIZE]
        loss = model(input_ids=examples[rows], labels=examples[rows]).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total / steps


def accuracy(arrays: ArrayRecord) -> float:
    """Return the share of letters that follow as predicted, in texts of the server."""
    examples = texts(200, seed=0)
    with torch.no_grad():
        logits = load_model(arrays, RecordDict()).eval()(input_ids=examples).logits
    return float((logits[:, :-1].argmax(-1) == examples[:, 1:]).float().mean())
