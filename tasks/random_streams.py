"""Independent random streams, one for each purpose.

Every random draw of a run comes from a stream named by the run's seed and a path of integers or
words (purpose, client, round), so the same seed gives the same run whatever the order of draws or
the number of workers. A path must end in a word or in a round, which counts from 1:
`numpy.random.SeedSequence` ignores trailing zeros.
"""

import zlib

import numpy as np
import torch


def numpy_generator(seed: int, *path: int | str) -> np.random.Generator:
    """Return the NumPy generator of the stream ``path`` under ``seed``."""
    return np.random.default_rng(_sequence(seed, path))


def torch_generator(seed: int, *path: int | str) -> torch.Generator:
    """Return the (CPU) torch generator of the stream ``path`` under ``seed``."""
    return torch.Generator().manual_seed(derive_seed(seed, *path))


def derive_seed(seed: int, *path: int | str) -> int:
    """Return a 63-bit integer from the stream, for libraries that take a seed."""
    return int(_sequence(seed, path).generate_state(1, np.uint64)[0] >> 1)


def _sequence(seed: int, path: tuple[int | str, ...]) -> np.random.SeedSequence:
    words = [zlib.crc32(step.encode()) if isinstance(step, str) else step for step in path]
    return np.random.SeedSequence([seed, *words])
