"""Time, memory and size of every compressor of updates, next to a copy and to zlib and zstd.

    python -m benchmarks.codec [--task mnist-cnn | --entries 10000000]

A normal update of the task's model, or of one array of so many entries, is encoded, and decoded to
a dense vector, by each compressor in several settings, beside a copy, zlib and zstd of the float32
bytes. Times are medians on one core, in nanoseconds an entry, with the ratio to a copy that is
timed just before, since a shared machine's speed drifts. Memory is the most that is allocated at a
time, the result included, in vectors of float32.
"""

import argparse
import statistics
import time
import tracemalloc
import zlib
from collections.abc import Callable

import numpy as np
import zstandard
from rich import box
from rich.console import Console
from rich.table import Table

import tasks
from strategies import compression
from strategies.compression.vector_layout import Layout

ZLIB_LEVEL, ZSTD_LEVEL = 6, 3
MIN_REPEATS, MIN_SECONDS = 5, 0.3
COLUMNS = (
    "bits", "formula", "encode, ns", "copies", "memory", "decode, ns", "copies", "memory",
)  # fmt: skip
# What is timed: by what the table calls them, names and arguments.
SETTINGS: dict[str, tuple[str, dict[str, object]]] = {
    "float32": ("float32", {}),
    "float16": ("float16", {}),
    "8 bits, max": ("quantized", {"bits": 8, "norm": "max"}),
    "QSGD, 4 bits": ("quantized", {"bits": 4}),
    "QSGD, 2 bits": ("quantized", {"bits": 2}),
    "EDEN, 4 bits": ("rotated", {"bits": 4}),
    "DRIVE": ("rotated", {"bits": 1}),
    "signs": ("sign", {}),
    "low rank, r = 2": ("low-rank", {"rank": 2}),
    "random, 1 %": ("random", {"sparsity": 0.01}),
    "top-k, 1 %": ("sparse", {"sparsity": 0.01}),
    "top-k, 1/400": ("sparse", {"sparsity": 1 / 400}),
    "chunks, 1/64, 2 bits": ("chunked", {}),
    "STC, 1/400": ("ternary", {"sparsity": 1 / 400}),
    "STC, 1": ("ternary", {"sparsity": 1.0}),
}


def median_seconds(call: Callable[[], object]) -> float:
    """Return the median time of a call, after a first call that does not count."""
    call()
    seconds: list[float] = []
    started = time.perf_counter()
    while len(seconds) < MIN_REPEATS or time.perf_counter() - started < MIN_SECONDS:
        before = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - before)
    return statistics.median(seconds)


def peak_bytes(call: Callable[[], object]) -> int:
    """Return the most bytes that a call has allocated at a time."""
    tracemalloc.start()
    call()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def digits(number: float) -> str:
    """Return the number with three significant digits, without an exponent."""
    return f"{float(f'{number:.3g}'):,g}"


def measure(task: str, entries: int) -> Table:
    """Return the table of what an update of so many entries takes; 0 for the task's model."""
    if entries:
        task, layout = "one array", Layout(("array",), ((entries,),))
    else:
        arrays = tasks.load(task).model().state_dict()
        layout = Layout.of({name: array.numpy() for name, array in arrays.items()})
    vector = np.random.default_rng(0).standard_normal(layout.size, dtype=np.float32)
    table = Table("compressor", title=f"{task}, n = {layout.size:,}", box=box.MARKDOWN)
    for column in COLUMNS:
        table.add_column(column, justify="right")

    def add(name: str, data: bytes, formula: str, *calls: Callable[[], object]) -> None:
        cells = [name, f"{8 * len(data) / layout.size:.4g}", formula]
        for call in calls:
            copying, seconds = median_seconds(vector.copy), median_seconds(call)
            cells += [digits(1e9 * seconds / layout.size), digits(seconds / copying)]
            cells.append(f"{peak_bytes(call) / vector.nbytes:.2f}")
        table.add_row(*cells)

    plain = vector.tobytes()
    add("a copy", plain, "", vector.copy)
    deflated = zlib.compress(plain, ZLIB_LEVEL)
    add(
        f"zlib, level {ZLIB_LEVEL}, of float32", deflated, "",
        lambda: zlib.compress(plain, ZLIB_LEVEL), lambda: zlib.decompress(deflated),
    )  # fmt: skip
    packer, unpacker = zstandard.ZstdCompressor(ZSTD_LEVEL), zstandard.ZstdDecompressor()
    frame = packer.compress(plain)
    add(
        f"zstd, level {ZSTD_LEVEL}, of float32", frame, "",
        lambda: packer.compress(plain), lambda: unpacker.decompress(frame),
    )  # fmt: skip
    for label, (name, arguments) in SETTINGS.items():
        made, rng = compression.build(name, arguments), np.random.default_rng(1)
        data = made.encode(vector, layout, rng)
        add(
            label, data, f"{made.expected_bits(layout) / layout.size:.4g}",
            lambda: made.encode(vector, layout, rng),  # noqa: B023
            lambda: made.decode(data, layout).to_dense(),  # noqa: B023
        )  # fmt: skip
    return table


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--task", choices=tasks.names(), default="mnist-cnn")
    parser.add_argument("--entries", type=int, default=0, help="of one array, instead of a task's")
    chosen = parser.parse_args()
    Console(width=130).print(measure(chosen.task, chosen.entries))


if __name__ == "__main__":
    main()
