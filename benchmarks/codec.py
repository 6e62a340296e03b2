"""Time and size of the STC codec, next to copying memory and to zlib and zstd.

One update of n random float32 parameters (10^4 to 10^8) is ternarised, encoded, decoded and made
dense again. zlib (level 6) and zstd (level 3) get the same ternary update as dense float32 bytes.
All times are medians, on one core; GB/s counts the n float32, whatever the form they are in.

    python benchmarks/codec.py --sizes 1e4 1e6 --sparsity 0.01

Measured on an AMD EPYC (AVX2, NumPy 2.4) at p = 1/400, from 10^7 parameters on: encoding and
decoding take less than a tenth of a memcpy, selecting 2 to 2.5 memcpys; zlib's bytes are 3.2 times
ours, zstd's 3.5 times. Of selecting at 10^8 (137 ms), writing the magnitudes takes half (72 ms),
the passes that find candidates most of the rest. A partition of all entries instead of these passes
takes 115 ms, but 3 s where most entries are 0 and many are equal, as in the server's mean of sparse
updates: hence the sample in `strategies.compression.topk`.
"""

import argparse
import statistics
import time
import zlib
from collections.abc import Callable, Sequence
from unittest import mock

import numpy as np
import zstandard
from rich.console import Console
from rich.table import Table

from strategies.compression import topk
from strategies.compression.ternary import Ternary, ternarise
from strategies.compression.theory import ternary_bits
from strategies.compression.topk import keep_count, top_k
from strategies.compression.update import Vector, mean

SIZES = (10**4, 10**5, 10**6, 10**7, 10**8)
CLIENTS = 10  # whose mean the server selects from
ZLIB_LEVEL, ZSTD_LEVEL = 6, 3
ZLIB_UP_TO = 10**7
LEAST_REPEATS, LEAST_SECONDS = 5, 0.3


def median_seconds(call: Callable[[], object]) -> float:
    """Return the median time of a call, after one that does not count."""
    call()
    seconds: list[float] = []
    while len(seconds) < LEAST_REPEATS or sum(seconds) < LEAST_SECONDS:
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def measure(
    values: Vector, sparsity: float, zlib_too: bool
) -> tuple[dict[str, float], dict[str, int]]:
    """Return seconds by what was done, and sizes in bytes by form, of one update.

    Raises:
        AssertionError: A form did not come back as it was.
    """
    size = len(values)
    update = ternarise(values, sparsity, (size,))
    data = update.encode()
    dense = update.to_dense()
    assert np.array_equal(Ternary.decode(data, (size,)).to_dense(), dense)
    seconds = {
        "memcpy": median_seconds(values.copy),
        "select (ternarise)": median_seconds(lambda: ternarise(values, sparsity, (size,))),
        "encode": median_seconds(update.encode),
        "decode": median_seconds(lambda: Ternary.decode(data, (size,))),
        "to_dense": median_seconds(update.to_dense),
    }
    sizes = {"dense": dense.nbytes, "ours": len(data)}
    plain = dense.data.cast("B")
    rivals: dict[str, tuple[Callable[[], bytes], Callable[[bytes], bytes]]] = {
        "zstd": (
            lambda: zstandard.ZstdCompressor(ZSTD_LEVEL).compress(plain),
            lambda packed: zstandard.ZstdDecompressor().decompress(packed),
        ),
    }
    if zlib_too:
        rivals["zlib"] = lambda: zlib.compress(plain, ZLIB_LEVEL), zlib.decompress
    for name, (pack, unpack) in rivals.items():
        packed = pack()
        assert unpack(packed) == plain
        sizes[name] = len(packed)
        seconds[f"{name} compress"] = median_seconds(pack)
        seconds[f"{name} decompress"] = median_seconds(lambda: unpack(packed))  # noqa: B023
    return seconds, sizes


def measure_selecting(values: Vector, sparsity: float) -> dict[str, tuple[float, float]]:
    """Return seconds of selecting (with a sample, by partitioning all) for two kinds of vector."""
    size, count = len(values), keep_count(len(values), sparsity)
    rng = np.random.default_rng(1)
    moved = rng.integers(size, size=CLIENTS).tolist()
    updates = [ternarise(np.roll(values, shift), sparsity, (size,)) for shift in moved]
    kinds = {"a client's update": values, "the server's mean": mean(updates, [1.0] * CLIENTS)}
    found = {}
    for kind, vector in kinds.items():
        sampled = median_seconds(lambda: top_k(vector, count))  # noqa: B023
        with mock.patch.object(topk, "SAMPLED_FROM", size + 1):
            found[kind] = sampled, median_seconds(lambda: top_k(vector, count))  # noqa: B023
    return found


def table(title: str, *columns: str) -> Table:
    """Return a table of numbers, but for columns without a name or named "of"."""
    made = Table(title=title, title_justify="left")
    for column in columns:
        made.add_column(column, justify="left" if column in ("", "of") else "right")
    return made


def report(console: Console, sizes: Sequence[int], sparsity: float, all_of_zlib: bool) -> None:
    """Measure every size and print the tables."""
    bytes_table = table(
        f"Bytes of one ternary update, p = {sparsity:g}, and how many times smaller than dense",
        "n", "dense", "formula", "x", "ours", "x", "zlib", "x", "zstd", "x",
    )  # fmt: skip
    selecting = table(
        "Selecting: top_k as it is, and by a partition of all entries",
        "n", "of", "ms", "all, ms", "times faster",
    )  # fmt: skip
    for size in sizes:
        values = np.random.default_rng(0).standard_normal(size, dtype=np.float32)
        zlib_too = all_of_zlib or size <= ZLIB_UP_TO
        seconds, found = measure(values, sparsity, zlib_too)
        times = table(f"n = {size:,}", "", "ms", "GB/s", "times memcpy")
        for name, taken in seconds.items():
            speed = f"{4e-9 * size / taken:.3g}"
            ratio = f"{taken / seconds['memcpy']:.3g}"
            times.add_row(name, f"{1e3 * taken:.4g}", speed, ratio)
        console.print(times)
        if not zlib_too:
            console.print(f"zlib is skipped beyond {ZLIB_UP_TO:,} parameters; --all includes it")

        figures = {"formula": ternary_bits(size, sparsity) / 8, **found}
        cells = [f"{size:,}", f"{found['dense']:,}"]
        for name in ("formula", "ours", "zlib", "zstd"):
            figure = figures.get(name)
            cells += [f"{figure:,.0f}", f"{4 * size / figure:.1f}"] if figure else ["-", "-"]
        bytes_table.add_row(*cells)
        for kind, (sampled, partitioned) in measure_selecting(values, sparsity).items():
            selecting.add_row(
                f"{size:,}", kind, f"{1e3 * sampled:.4g}", f"{1e3 * partitioned:.4g}",
                f"{partitioned / sampled:.2f}",
            )  # fmt: skip
    console.print(bytes_table)
    console.print(selecting)


def main() -> None:
    """Read the arguments and print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "--sizes", nargs="+", type=lambda text: int(float(text)), default=SIZES, metavar="N",
        help="numbers of parameters, as 1e6",
    )  # fmt: skip
    parser.add_argument("--sparsity", type=float, default=1 / 400, help="p, the share kept")
    parser.add_argument("--all", action="store_true", help="zlib also beyond 10^7 parameters")
    given = parser.parse_args()
    report(Console(width=110), given.sizes, given.sparsity, given.all)


if __name__ == "__main__":
    main()
