"""Random numbers that depend on what they are for, not on who asks first.

Every draw of a run comes from a stream named by the run's seed and a path of integers or words
(purpose, partition, round), so the same seed gives the same run whatever the order or the number
of workers. A path ends in a word or in a round, which counts from 1: zeros at its end do not count.
"""

import zlib

import numpy as np
import torch


def stream(seed: int, *path: int | str) -> np.random.Generator:
    """Return the NumPy generator of the stream ``path`` under ``seed``."""
    return np.random.default_rng(_sequence(seed, path))


def torch_stream(seed: int, *path: int | str) -> torch.Generator:
    """Return the (CPU) torch generator of the stream ``path`` under ``seed``."""
    return torch.Generator().manual_seed(integer(seed, *path))


def integer(seed: int, *path: int | str) -> int:
    """Return a 63-bit integer drawn from the stream, for libraries that take one seed."""
    return int(_sequence(seed, path).generate_state(1, np.uint64)[0] >> 1)


def _sequence(seed: int, path: tuple[int | str, ...]) -> np.random.SeedSequence:
    words = [zlib.crc32(step.encode()) if isinstance(step, str) else step for step in path]
    return np.random.SeedSequence([seed, *words])
