"""What papers claim of their compressors, next to what ours do.

    python -m benchmarks.compression_error [--size 131072] [--seeds 20]

The error of a compressor is the mean over seeds of ||Q(v) - v||^2 / ||v||^2, for v of a normal
distribution, and of a log-normal one with random signs, whose few large entries hold much of the
norm. Bits are those of the encoded bytes, heads included. Nothing is timed; the same arguments
print the same tables.
"""

import argparse
import math
from collections.abc import Iterator

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from strategies.compression.compressor import Compressor
from strategies.compression.decoded_update import Vector
from strategies.compression.low_rank import LowRank
from strategies.compression.quantized import Quantized
from strategies.compression.random_entries import RandomEntries
from strategies.compression.rotated import Rotated
from strategies.compression.sign import Sign
from strategies.compression.vector_layout import Layout

SIZE, SEEDS = 2**17, 20
BUCKET = 512
# Distortion of the best quantiser of a normal variable with 1 to 4 bits: J. Max 1960, table I.
MAX_DISTORTION = {1: 0.3634, 2: 0.1175, 3: 0.03454, 4: 0.009497}
# Vogels et al. 2019, table 3, from memory: how many times less ResNet-18 sends with rank r on
# CIFAR-10.
POWERSGD_RATIOS = {1: 243, 2: 136, 4: 72}


def vectors(size: int) -> dict[str, Vector]:
    """Return the vectors that are compressed, float32 (size,)."""
    rng = np.random.default_rng(1)
    normal = rng.standard_normal(size)
    heavy = rng.lognormal(0, 2, size) * rng.choice([-1, 1], size)
    return {"normal": normal.astype(np.float32), "log-normal": heavy.astype(np.float32)}


def error(compressor: Compressor, vector: Vector, seeds: int) -> tuple[float, float]:
    """Return (the mean relative error, the mean bits an entry) over the seeds."""
    layout = Layout(("weights",), (vector.shape,))
    exact = vector.astype(np.float64)
    errors, bits = [], []
    for seed in range(seeds):
        data = compressor.encode(vector, layout, np.random.default_rng(seed))
        found = compressor.decode(data, layout).to_dense().astype(np.float64)
        errors.append(((found - exact) ** 2).sum() / (exact**2).sum())
        bits.append(8 * len(data) / len(vector))
    return float(np.mean(errors)), float(np.mean(bits))


def scaled_sign(vector: Vector) -> Sign:
    """Return the compressor that sends sign(v) times the mean magnitude of this vector."""
    return Sign(float(np.abs(vector).mean(dtype=np.float64)))


def qsgd_rows(size: int, seeds: int) -> Iterator[list[str]]:
    """Yield QSGD's rows: levels, the bound, and the errors."""
    for bits in (2, 3, 4, 8):
        compressor = Quantized(bits, BUCKET)
        s = compressor.levels
        bound = min(BUCKET / s**2, math.sqrt(BUCKET) / s)
        found = [error(compressor, vector, seeds)[0] for vector in vectors(size).values()]
        yield [str(bits), str(s), f"{bound:.4g}", *(f"{one:.4g}" for one in found)]


def equal_bits_rows(size: int, seeds: int) -> Iterator[list[str]]:
    """Yield the rows of compressors with 1 to 4 bits: claim, errors, and bits as sent."""
    drawn = vectors(size)
    for bits, distortion in MAX_DISTORTION.items():
        name = "DRIVE" if bits == 1 else "EDEN"
        unbiased = distortion / (1 - distortion)
        # One bit: pi / 2 - 1 and 1 - 2 / pi, of which the table has four digits.
        rows: list[tuple[str, str, Compressor | None]] = [
            (f"{name}, unbiased", f"{unbiased:.4g}", Rotated(bits)),
            (f"{name}, biased", f"{distortion:.4g}", Rotated(bits, unbiased=False)),
        ]
        if bits == 1:
            rows.append(("scaled sign, biased", "", None))
        else:
            rows.append(("QSGD, l2, unbiased", "", Quantized(bits, BUCKET)))
            rows.append(("QSGD, max, unbiased", "", Quantized(bits, BUCKET, "max")))
        for label, claim, compressor in rows:
            found = [error(compressor or scaled_sign(v), v, seeds) for v in drawn.values()]
            yield [
                str(bits), label, claim, *(f"{one:.4g}" for one, _ in found), f"{found[0][1]:.3f}",
            ]  # fmt: skip


def random_rows(size: int, seeds: int) -> Iterator[list[str]]:
    """Yield random-k's rows: n/k - 1 and the errors."""
    for sparsity in (0.01, 0.1, 0.5):
        claim = size / round(sparsity * size) - 1
        compressor = RandomEntries(sparsity, unbiased=True)
        found = [error(compressor, vector, seeds)[0] for vector in vectors(size).values()]
        yield [f"{sparsity:g}", f"{claim:.4g}", *(f"{one:.4g}" for one in found)]


def resnet18() -> Layout:
    """Return the layout of the ResNet-18 that is trained on CIFAR-10: 11,173,962 weights."""
    shapes: list[tuple[int, ...]] = [(64, 3, 3, 3), (64,), (64,)]
    before = 64
    for width in (64, 128, 256, 512):
        for block in range(2):
            inputs = before if block == 0 else width
            kernels = [(width, inputs, 3, 3), (width, width, 3, 3)]
            if inputs != width:
                kernels.append((width, inputs, 1, 1))
            for kernel in kernels:
                shapes += [kernel, (width,), (width,)]  # and batch normalisation's scale and shift
        before = width
    shapes += [(10, 512), (10,)]
    return Layout(tuple(f"array{place}" for place in range(len(shapes))), tuple(shapes))


def low_rank_rows() -> Iterator[list[str]]:
    """Yield PowerSGD's rows: how many times smaller than float32 an update is."""
    layout = resnet18()
    for rank, claim in POWERSGD_RATIOS.items():
        data = LowRank(rank).encode(
            np.ones(layout.size, np.float32), layout, np.random.default_rng(1)
        )
        yield [str(rank), f"{claim}", f"{4 * layout.size / len(data):.1f}"]


def show(console: Console, title: str, columns: list[str], rows: Iterator[list[str]]) -> None:
    """Print a table as Markdown."""
    table = Table(*columns, box=box.MARKDOWN)
    for row in rows:
        table.add_row(*row)
    console.print(f"\n{title}\n", highlight=False)
    console.print(table)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--size", type=int, default=SIZE, help="entries of a vector")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    given = parser.parse_args()
    console = Console(width=120)
    names = list(vectors(1))
    show(
        console, f"QSGD, l2 norm, buckets of {BUCKET}",
        ["bits", "s", "bound", *names], qsgd_rows(given.size, given.seeds),
    )  # fmt: skip
    show(
        console, "Equal bits",
        ["bits", "compressor", "claim", *names, "bits sent"],
        equal_bits_rows(given.size, given.seeds),
    )  # fmt: skip
    show(
        console, "Random-k, unbiased", ["p", "n/k - 1", *names],
        random_rows(given.size, given.seeds),
    )  # fmt: skip
    show(console, "PowerSGD, ResNet-18", ["rank", "paper", "times smaller"], low_rank_rows())


if __name__ == "__main__":
    main()
