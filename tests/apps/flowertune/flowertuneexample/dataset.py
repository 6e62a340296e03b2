"""Made-up text: each letter follows from the one before it, nearly always."""

import torch

LETTERS, LENGTH = 32, 24
NOISE = 0.02


def examples(number: int, seed: int) -> torch.Tensor:
    """Return texts as letters, (number, LENGTH); the next one is 5 times it and 3, modulo 32."""
    generator = torch.Generator().manual_seed(seed)
    texts = torch.empty(number, LENGTH, dtype=torch.long)
    texts[:, 0] = torch.randint(LETTERS, (number,), generator=generator)
    for place in range(1, LENGTH):
        follows = (5 * texts[:, place - 1] + 3) % LETTERS
        other = torch.randint(LETTERS, (number,), generator=generator)
        is_other = torch.rand(number, generator=generator) < NOISE
        texts[:, place] = torch.where(is_other, other, follows)
    return texts
