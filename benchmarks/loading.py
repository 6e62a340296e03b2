"""How long a task's data take to load: parsed and stored the first time, then from the cache.

    python -m benchmarks.loading --task cifar10-cnn --data-dir /path/to/cifar10

The first time is in a new, empty cache, and includes the check of the files' content.
"""

import argparse
import os
import tempfile
import time

import tasks
from tasks.data.cache import CACHE_VARIABLE
from tasks.data.dataset import DataOptions


def main() -> None:
    """Print both times."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--task", default="cifar10-cnn")
    parser.add_argument("--data-dir", default="")
    given = parser.parse_args()
    task = tasks.load(given.task)
    options = DataOptions(directory=given.data_dir)
    with tempfile.TemporaryDirectory() as cache:
        os.environ[CACHE_VARIABLE] = cache
        for what in ("first", "cached"):
            started = time.perf_counter()
            data = task.dataset(options)
            print(f"{what}: {time.perf_counter() - started:.2f} s  ({data.description})")


if __name__ == "__main__":
    main()
