"""Independent random streams, one per purpose.

Every random draw of a run comes from a stream named by the run's seed and a path of integers or
words (purpose, client, round), so the same seed gives the same run whatever the order of draws or
the number of workers. A path must end in a word or in a round, which counts from 1:
`numpy.random.SeedSequence` ignores trailing zeros.
"""

import random
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:  # torch takes two seconds to import, and only some streams need it
    import torch


def numpy_generator(seed: int, *path: int | str) -> np.random.Generator:
    """Return the NumPy generator of the stream ``path`` under ``seed``."""
    return np.random.default_rng(_sequence(seed, path))


def torch_generator(seed: int, *path: int | str) -> "torch.Generator":
    """Return the (CPU) torch generator of the stream ``path`` under ``seed``."""
    import torch

    return torch.Generator().manual_seed(derive_seed(seed, *path))


@contextmanager
def seeded(seed: int, device: "torch.device", *, only_torch: bool = False) -> Iterator[None]:
    """Seed the global random states inside, and restore what they were before.

    These are torch's, NumPy's and Python's: people's code draws from any of them. Torch's are the
    CPU's and, if ``device`` is a CUDA device, that device's, from which dropout, for example, draws
    there. The same seed gives other numbers there than on the CPU.

    Args:
        seed: A 64-bit integer, for example from `derive_seed`.
        device: The device that computes.
        only_torch: Leave out NumPy's and Python's, which take ten times as long as torch's.
    """
    import torch

    devices = []
    if device.type == "cuda":
        devices.append(torch.cuda.current_device() if device.index is None else device.index)
    with torch.random.fork_rng(devices):
        torch.default_generator.manual_seed(seed)
        for index in devices:
            torch.cuda.default_generators[index].manual_seed(seed)
        if only_torch:
            yield
            return
        # NumPy's global state is for code that is not ours.
        python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
        random.seed(seed)
        np.random.seed(seed % 2**32)  # noqa: NPY002
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)  # noqa: NPY002


def derive_seed(seed: int, *path: int | str) -> int:
    """Return a 63-bit integer from the stream, for libraries that take a seed."""
    return int(_sequence(seed, path).generate_state(1, np.uint64)[0] >> 1)


def _sequence(seed: int, path: tuple[int | str, ...]) -> np.random.SeedSequence:
    words = [zlib.crc32(step.encode()) if isinstance(step, str) else step for step in path]
    return np.random.SeedSequence([seed, *words])
