"""Time and size of every compressor of updates, next to copying memory and to zlib and zstd.

    python -m benchmarks.codec [--sizes 1e4 1e6] [--compressors ternary] [--sparsity 0.01]
    python -m benchmarks.codec --task mnist-cnn

One update of n random float32 entries is encoded, decoded and made dense again by each compressor.
zlib (level 6) and zstd (level 3) get the update that it decodes to, as dense float32 bytes, so that
they compress the same information. A second table times the selection of the k largest entries,
with the threshold from a sample that it takes first and without.

With a task, a normal update of its model's arrays is encoded and decoded by each compressor in
several settings, beside a copy, zlib and zstd of the float32 bytes; nanoseconds an entry, and the
ratio to a copy that is timed just before, since a shared machine's speed drifts.

All times are medians, on one core; GB/s counts the n float32, whatever the form they are in.
"""

import argparse
import statistics
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from unittest import mock

import numpy as np
import zstandard
from rich import box
from rich.console import Console
from rich.table import Table

import tasks
from strategies import compression
from strategies.compression import largest_entries
from strategies.compression.compressor import Compressor
from strategies.compression.decoded_update import Vector
from strategies.compression.sparse import Sparse
from strategies.compression.ternary import Ternary
from strategies.compression.vector_layout import Layout

SIZES = (10**4, 10**5, 10**6, 10**7)
SPARSITY = 1 / 400
CLIENTS = 10  # whose mean the server selects from
ZLIB_LEVEL, ZSTD_LEVEL = 6, 3
ZLIB_MAX_SIZE = 10**7
MIN_REPEATS, MIN_SECONDS = 5, 0.3
# What is timed for a task: by what the table calls them, names and arguments.
SETTINGS: dict[str, tuple[str, dict[str, object]]] = {
    "float32": ("float32", {}),
    "float16": ("float16", {}),
    "float16, zstd": ("zstd", {}),
    "8 bits, max": ("quantized", {"bits": 8, "norm": "max"}),
    "8 bits, max, zstd": ("zstd", {"of": {"name": "quantized", "bits": 8, "norm": "max"}}),
    "QSGD, 4 bits": ("quantized", {"bits": 4}),
    "QSGD, 2 bits": ("quantized", {"bits": 2}),
    "EDEN, 4 bits": ("rotated", {"bits": 4}),
    "DRIVE": ("rotated", {"bits": 1}),
    "signs": ("sign", {}),
    "PowerSGD, rank 2": ("low-rank", {"rank": 2}),
    "random, 1 %": ("random", {"sparsity": 0.01}),
    "top-k, 1 %": ("sparse", {"sparsity": 0.01}),
    "top-k, 1/400": ("sparse", {"sparsity": 1 / 400}),
    "STC, 1/400": ("ternary", {"sparsity": 1 / 400}),
}


@dataclass(frozen=True)
class Timing:
    """What was done, in how many seconds, and to how many bytes; None where none are made."""

    name: str
    seconds: float
    size: int | None = None


def median_seconds(call: Callable[[], object]) -> float:
    """Return the median time of a call, after one that does not count."""
    call()
    seconds: list[float] = []
    started = time.perf_counter()
    while len(seconds) < MIN_REPEATS or time.perf_counter() - started < MIN_SECONDS:
        before = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - before)
    return statistics.median(seconds)


def build(name: str, sparsity: float) -> Compressor:
    """Return the compressor with its defaults, and with this sparsity if it has one."""
    compressor = compression.build(name)
    if isinstance(compressor, Sparse | Ternary):
        return replace(compressor, sparsity=sparsity)
    return compressor


def layout_of(vector: Vector) -> Layout:
    """Return the layout of a model of one array."""
    return Layout(("weights",), (vector.shape,))


def measure_compressor(compressor: Compressor, vector: Vector, with_zlib: bool) -> list[Timing]:
    """Return what it takes to encode and to decode the vector, with zlib and zstd to compare."""
    layout, rng = layout_of(vector), np.random.default_rng(1)
    data = compressor.encode(vector, layout, rng)
    update = compressor.decode(data, layout)
    timings = [
        Timing("encode", median_seconds(lambda: compressor.encode(vector, layout, rng)), len(data)),
        Timing("decode", median_seconds(lambda: compressor.decode(data, layout))),
        Timing("to_dense", median_seconds(update.to_dense)),
    ]
    dense = update.to_dense().tobytes()
    if with_zlib:
        packed = zlib.compress(dense, ZLIB_LEVEL)
        seconds = median_seconds(lambda: zlib.compress(dense, ZLIB_LEVEL))
        timings.append(Timing("zlib compress", seconds, len(packed)))
        timings.append(Timing("zlib decompress", median_seconds(lambda: zlib.decompress(packed))))
    packer, unpacker = zstandard.ZstdCompressor(ZSTD_LEVEL), zstandard.ZstdDecompressor()
    frame = packer.compress(dense)
    seconds = median_seconds(lambda: packer.compress(dense))
    timings.append(Timing("zstd compress", seconds, len(frame)))
    timings.append(Timing("zstd decompress", median_seconds(lambda: unpacker.decompress(frame))))
    return timings


def digits(number: float) -> str:
    """Return the number with three significant digits, without an exponent."""
    return f"{float(f'{number:.3g}'):,g}"


def measure_task(task: str) -> Table:
    """Return the table of what an update of the task's model takes."""
    arrays = tasks.load(task).model().state_dict()
    layout = Layout.of({name: array.numpy() for name, array in arrays.items()})
    vector = np.random.default_rng(0).standard_normal(layout.size, dtype=np.float32)
    table = make_table(
        f"{task}, n = {layout.size:,}", 1, "compressor", "bits", "formula", "encode, ns",
        "times a copy", "decode, ns", "times a copy",
    )  # fmt: skip
    table.box = box.MARKDOWN

    def add(name: str, data: bytes, formula: float | None, *calls: Callable[[], object]) -> None:
        per_entry = 8 / layout.size
        cells = [name, f"{per_entry * len(data):.4g}"]
        cells.append("" if formula is None else f"{formula / layout.size:.4g}")
        for call in calls:
            copying, seconds = median_seconds(vector.copy), median_seconds(call)
            cells += [digits(1e9 * seconds / layout.size), digits(seconds / copying)]
        table.add_row(*cells)

    plain, unpacker = vector.tobytes(), zstandard.ZstdDecompressor()
    add("a copy", plain, None, vector.copy)
    deflated, packer = zlib.compress(plain, ZLIB_LEVEL), zstandard.ZstdCompressor(ZSTD_LEVEL)
    add(
        f"zlib, level {ZLIB_LEVEL}, of float32", deflated, None,
        lambda: zlib.compress(plain, ZLIB_LEVEL), lambda: zlib.decompress(deflated),
    )  # fmt: skip
    frame = packer.compress(plain)
    add(
        f"zstd, level {ZSTD_LEVEL}, of float32", frame, None,
        lambda: packer.compress(plain), lambda: unpacker.decompress(frame),
    )  # fmt: skip
    for label, (name, arguments) in SETTINGS.items():
        made, rng = compression.build(name, arguments), np.random.default_rng(1)
        data = made.encode(vector, layout, rng)
        add(
            label, data, made.expected_bits(layout),
            lambda: made.encode(vector, layout, rng),  # noqa: B023
            lambda: made.decode(data, layout).to_dense(),  # noqa: B023
        )  # fmt: skip
    return table


def measure_selection(vector: Vector, sparsity: float) -> dict[str, tuple[float, float]]:
    """Return the seconds of selecting, with a sample and without, for two kinds of vectors."""
    size, count = len(vector), largest_entries.keep_count(len(vector), sparsity)
    rng = np.random.default_rng(1)
    ternary, layout = Ternary(sparsity), layout_of(vector)
    total = np.zeros(size)
    for shift in rng.integers(size, size=CLIENTS).tolist():
        data = ternary.encode(np.roll(vector, shift), layout, rng)
        ternary.decode(data, layout).add_to(total, 1 / CLIENTS)
    kinds = {"a client's update": vector, "the server's mean": total.astype(np.float32)}
    found = {}
    for kind, values in kinds.items():
        sampled = median_seconds(lambda: largest_entries.largest(values, count))  # noqa: B023
        with mock.patch.object(largest_entries, "MIN_SIZE_FOR_SAMPLE", size + 1):
            unsampled = median_seconds(lambda: largest_entries.largest(values, count))  # noqa: B023
        found[kind] = sampled, unsampled
    return found


def add_rows(
    table: Table, name: str, compressor: Compressor, timings: list[Timing], n: int, copying: float
) -> None:
    """Add a compressor's rows; ``copying`` are the seconds of a memcpy."""
    formula = f"{compressor.expected_bits(Layout(('weights',), ((n,),))) / 8:,.0f}"
    for place, timing in enumerate(timings):
        table.add_row(
            "" if place else name,
            timing.name,
            f"{1e3 * timing.seconds:.4g}",
            f"{4e-9 * n / timing.seconds:.3g}",
            f"{timing.seconds / copying:.3g}",
            f"{timing.size:,}" if timing.size else "",
            f"{4 * n / timing.size:.1f}" if timing.size else "",
            "" if place else formula,
        )
    table.add_section()


def make_table(title: str, left: int, *columns: str) -> Table:
    """Return an empty table whose first ``left`` columns are text and the others numbers."""
    table = Table(title=title, title_justify="left")
    for place, column in enumerate(columns):
        table.add_column(column, justify="left" if place < left else "right")
    return table


def main() -> None:
    """Measure every size and print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "--sizes", nargs="+", type=lambda text: int(float(text)), default=SIZES, metavar="N",
        help="numbers of entries, as 1e6",
    )  # fmt: skip
    parser.add_argument(
        "--compressors", nargs="+", default=compression.names(), metavar="NAME",
        help=f"{', '.join(compression.names())} (the default is all), or package.module:Class",
    )  # fmt: skip
    parser.add_argument("--sparsity", type=float, default=SPARSITY, help="p, the share kept")
    parser.add_argument("--all", action="store_true", help="zlib also beyond 10^7 entries")
    parser.add_argument("--task", help="time the compressors for this task's model, as mnist-cnn")
    given = parser.parse_args()
    console = Console(width=110)
    if given.task:
        console.print(measure_task(given.task))
        return
    selecting = make_table(
        "Selecting the k largest entries: with a sample, and by a partition of all entries",
        2, "n", "of", "ms", "without sample, ms", "times faster",
    )  # fmt: skip
    for size in given.sizes:
        vector = np.random.default_rng(0).standard_normal(size, dtype=np.float32)
        with_zlib = given.all or size <= ZLIB_MAX_SIZE
        copying = median_seconds(vector.copy)
        times = make_table(
            f"n = {size:,}, {4 * size:,} bytes, memcpy {1e3 * copying:.4g} ms, "
            f"p = {given.sparsity:g}",
            2, "compressor", "", "ms", "GB/s", "times memcpy", "bytes", "times smaller", "formula",
        )  # fmt: skip
        for name in given.compressors:
            compressor = build(name, given.sparsity)
            timings = measure_compressor(compressor, vector, with_zlib)
            add_rows(times, name, compressor, timings, size, copying)
        console.print(times)
        if not with_zlib:
            console.print(f"zlib is skipped beyond {ZLIB_MAX_SIZE:,} entries; --all includes it")
        for kind, (sampled, unsampled) in measure_selection(vector, given.sparsity).items():
            selecting.add_row(
                f"{size:,}", kind, f"{1e3 * sampled:.4g}", f"{1e3 * unsampled:.4g}",
                f"{unsampled / sampled:.2f}",
            )  # fmt: skip
    console.print(selecting)


if __name__ == "__main__":
    main()
