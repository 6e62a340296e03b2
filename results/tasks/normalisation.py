"""A training step of the CIFAR-10 network with our response normalisation and with torch's.

    python -m results.tasks.normalisation [--steps 10]

Also timed without any, which is no model of the paper's. One thread, batches of 50, in turn.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from rich.console import Console
from rich.table import Table
from torch import nn
from torch.nn import functional

from tasks.cifar import paper_cnn
from tasks.local_response_norm import LocalResponseNorm

BATCH = 50


def torchs(_: int) -> nn.Module:
    """Return torch's layer with the tutorial's numbers."""
    return nn.LocalResponseNorm(9, alpha=0.001, beta=0.75, k=1.0)


def network(norm: Callable[[int], nn.Module]) -> nn.Module:
    """Return the paper's network with another normalisation."""
    found = paper_cnn()
    assert isinstance(found, nn.Sequential)
    for place, layer in enumerate(found):
        if isinstance(layer, LocalResponseNorm):
            found[place] = norm(64)
    return found


def step(model: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> float:
    """Return the seconds of one forward and backward pass."""
    started = time.perf_counter()
    functional.cross_entropy(model(images), labels).backward()  # type: ignore[no-untyped-call]
    return time.perf_counter() - started


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=10)
    given = parser.parse_args()
    torch.set_num_threads(1)
    images = torch.randn(BATCH, 3, 24, 24).contiguous(memory_format=torch.channels_last)
    labels = torch.randint(10, (BATCH,))
    kinds = {"ours": LocalResponseNorm, "torch's": torchs, "none": lambda _: nn.Identity()}
    models = {name: network(norm) for name, norm in kinds.items()}
    seconds: dict[str, list[float]] = {name: [] for name in models}
    for number in range(given.steps + 2):
        for name, model in models.items():
            taken = step(model, images, labels)
            if number >= 2:  # the first two warm up
                seconds[name].append(taken)
    table = Table("normalisation", "ms a step", "to ours")
    ours = statistics.median(seconds["ours"])
    for name, taken in seconds.items():
        median = statistics.median(taken)
        table.add_row(name, f"{median * 1e3:.1f}", f"{median / ours:.2f}x")
    Console().print(table)


if __name__ == "__main__":
    main()
